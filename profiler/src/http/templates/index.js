"use strict";
// Asks for the live part again and again, while the page can be seen.
const live = document.querySelector("main[data-live]");
const EVERY_MS = 2000;
async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch(live.dataset.live, { cache: "no-store" });
      if (answer.ok) live.innerHTML = await answer.text();
      document.body.classList.toggle("stale", !answer.ok);
    } catch {
      document.body.classList.add("stale");
    }
  }
  setTimeout(refresh, EVERY_MS);
}
if (live) setTimeout(refresh, EVERY_MS);

// The picture searches by itself; its functions are called.
const flame = document.querySelector(".flame");
const search = document.querySelector("form");
if (flame && search) {
  search.addEventListener("submit", event => {
    event.preventDefault();
    const picture = flame.contentWindow;
    const words = search.elements.words.value.trim();
    if (picture && picture.search) words ? picture.search(words) : picture.reset_search();
  });
  search.elements.again.addEventListener("click", () => { flame.data = flame.data; });
}
