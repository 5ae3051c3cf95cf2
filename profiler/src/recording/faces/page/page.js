for(const th of document.querySelectorAll('th'))th.addEventListener('click',()=>{
 const body=th.closest('table').tBodies[0],at=th.cellIndex,down=th.dataset.down!=='1';
 for(const other of th.parentNode.children)delete other.dataset.down;
 th.dataset.down=down?'1':'0';
 const value=row=>{const c=row.cells[at],v=c.dataset.v??c.textContent.replace(/,/g,'');const n=parseFloat(v);return isNaN(n)?c.textContent:n};
 [...body.rows].sort((a,b)=>{const x=value(a),y=value(b),s=x<y?-1:x>y?1:0;return down?-s:s}).forEach(r=>body.append(r));
});
