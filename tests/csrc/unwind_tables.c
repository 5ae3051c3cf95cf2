/* A program with long unwind tables, of which samples read some: says how many pages of them are mapped then.
 *
 * unwind_tables          nothing else
 * unwind_tables written  a byte of them is written first, and looked at again behind the samples */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define SAMPLES 24

static void *volatile kept;

/* Functions that differ, so that each has a description of its own. */
#define FUNCTION(n) \
	__attribute__((noinline)) static int function_##n(int bytes) { \
		kept = malloc(bytes); \
		free(kept); \
		return bytes + 0x##n; \
	}
#define SIXTEEN(x, M) \
	M(x##0) M(x##1) M(x##2) M(x##3) M(x##4) M(x##5) M(x##6) M(x##7) \
	M(x##8) M(x##9) M(x##a) M(x##b) M(x##c) M(x##d) M(x##e) M(x##f)
#define ROW(x) SIXTEEN(x, FUNCTION)
#define SQUARE(x) SIXTEEN_ROWS(x, ROW)
#define SIXTEEN_ROWS(x, M) \
	M(x##0) M(x##1) M(x##2) M(x##3) M(x##4) M(x##5) M(x##6) M(x##7) \
	M(x##8) M(x##9) M(x##a) M(x##b) M(x##c) M(x##d) M(x##e) M(x##f)
#define NAME(n) function_##n,
#define NAME_ROW(x) SIXTEEN(x, NAME)
#define NAME_SQUARE(x) SIXTEEN_ROWS(x, NAME_ROW)
#define EACH(M) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(a) M(b) M(c) M(d) M(e) M(f)

EACH(SQUARE)

static int (*const functions[])(int) = {EACH(NAME_SQUARE)};

static uintptr_t first, end;

static int find(struct dl_phdr_info *info, size_t size, void *unused) {
	(void)size, (void)unused;
	uintptr_t tables = 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
			tables = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, stop = start + info->dlpi_phdr[i].p_filesz;
		if (info->dlpi_phdr[i].p_type == PT_LOAD && start <= tables && tables < stop)
			first = (tables + PAGE - 1) / PAGE, end = (stop + PAGE - 1) / PAGE;
	}
	return 1; /* The program is the first one. */
}

static int mapped(void) {
	int file = open("/proc/self/pagemap", O_RDONLY), pages = 0;
	for (uintptr_t page = first; page < end; page++) {
		uint64_t word = 0;
		if (pread(file, &word, sizeof word, page * sizeof word) != sizeof word)
			return -1;
		pages += word >> 63;
	}
	close(file);
	return pages;
}

int main(int argc, char **argv) {
	dl_iterate_phdr(find, NULL);
	char *last = (char *)(end * PAGE) - 1;
	int writes = argc > 1 && !strcmp(argv[1], "written");
	if (writes) {
		void *page = (void *)((end - 1) * PAGE);
		if (mprotect(page, PAGE, PROT_READ | PROT_WRITE))
			return 1;
		*last = 42;
		if (mprotect(page, PAGE, PROT_READ))
			return 1;
	}
	int sum = 0, count = sizeof functions / sizeof *functions;
	for (int i = 0; i < SAMPLES; i++)
		sum += functions[i * (count / SAMPLES)](100000);
	printf("%d of %d pages, %s\n", mapped(), (int)(end - first), writes && *last != 42 ? "lost" : sum ? "well" : "");
	return 0;
}
