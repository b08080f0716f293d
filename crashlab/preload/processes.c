/*
 * The list of the processes that the library is in (docs/formats.md, "The list of processes").
 *
 * It is what a process that the lab finds at the kill is compared with: one that is not on it was not recorded. A
 * killed process leaves its line complete or absent.
 */
#define _GNU_SOURCE
#include "record.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct line {
  _Atomic uint32_t pid; /* stored last, with release order */
  uint32_t parent;
  uint32_t origin;
  uint32_t zero;
  uint64_t ns;
  uint64_t padding_24;
};

struct list {
  char magic[8];
  uint64_t capacity; /* lines */
  char padding_16[48];
  _Atomic uint64_t count; /* lines asked for; more than there is room for if it ran full */
  char padding_72[4096 - 72];
  struct line lines[];
};
_Static_assert(sizeof(struct line) == 32, "docs/formats.md");
_Static_assert(offsetof(struct list, count) == 64, "docs/formats.md");
_Static_assert(offsetof(struct list, lines) == 4096, "docs/formats.md");

static struct list *list;

const char *processes_open(const char *path) {
  struct stat status;
  int descriptor = real()->openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return "open";
  const char *fault = NULL;
  void *mapped = MAP_FAILED;
  if (fstat(descriptor, &status) != 0 || status.st_size < (off_t)sizeof *list)
    fault = "no list of processes";
  else
    mapped = real()->mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  real()->close(descriptor);
  if (mapped == MAP_FAILED) return fault != NULL ? fault : "map";
  list = mapped;
  if (memcmp(list->magic, "DTPROC01", 8) != 0 ||
      list->capacity > ((uint64_t)status.st_size - sizeof *list) / sizeof *list->lines)
    return "no list of processes";
  return NULL;
}

void processes_report(pid_t pid, pid_t parent, enum origin origin) {
  if (list == NULL) return;
  uint64_t place = atomic_fetch_add(&list->count, 1);
  if (place >= list->capacity) return;
  struct line *line = &list->lines[place];
  line->parent = (uint32_t)parent;
  line->origin = (uint32_t)origin;
  line->ns = dt_monotonic_ns();
  atomic_store_explicit(&line->pid, (uint32_t)pid, memory_order_release);
}
