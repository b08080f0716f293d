/*
 * The one call of a run that is made to fail: the Nth sync with EIO, or the Nth write with ENOSPC.
 *
 * The call is not made; it is in the log like any other, with the error as its result. Calls are counted in the log's
 * header, over all processes, from the moment on that the creator of the log arms the fault there. A sync is an fsync
 * or fdatasync of a file; a write is any call of that name. Syncs of folders, of ranges and of whole file systems, and
 * writes that are their own sync, never fail here as syncs.
 *
 * Which files count is an extended regular expression of their paths below the root, at the time of the call: a file
 * that has no name any more is none of them.
 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <regex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct fault_state *shared; /* NULL where none is asked for */
static enum fault kind;
static uint64_t nth;
static bool every_file;
static regex_t files;

/* "fsync-eio@3", "enospc@1" */
static bool read_asked(const char *asked) {
  const char *at = strchr(asked, '@');
  if (at == NULL || at[1] < '0' || at[1] > '9') return false;
  char *end;
  errno = 0;
  nth = strtoull(at + 1, &end, 10);
  if (errno != 0 || *end != '\0' || nth == 0) return false;
  if (strncmp(asked, "fsync-eio@", 10) == 0)
    kind = FAULT_SYNC_EIO;
  else if (strncmp(asked, "enospc@", 7) == 0)
    kind = FAULT_WRITE_ENOSPC;
  else
    return false;
  return true;
}

const char *fault_open(struct fault_state *state, const char *asked, const char *pattern) {
  if (!read_asked(asked)) return "DURATUNE_RECORD_FAULT is not understood";
  every_file = pattern == NULL;
  if (!every_file && regcomp(&files, pattern, REG_EXTENDED | REG_NOSUB) != 0)
    return "DURATUNE_RECORD_FAULT_FILES is no regular expression";
  /* An engine may abort over the fault, and a core file in its folder would be one that the log does not hold. */
  struct rlimit core;
  if (getrlimit(RLIMIT_CORE, &core) == 0) {
    core.rlim_cur = 0;
    (void)!setrlimit(RLIMIT_CORE, &core);
  }
  shared = state;
  return NULL;
}

static bool counts(int descriptor) {
  if (every_file) return true;
  char link[40], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t bytes = readlink(link, path, sizeof path - 1);
  if (bytes <= 0) return false;
  path[bytes] = '\0';
  const char *relative = place_below_root(path);
  return relative != NULL && regexec(&files, relative, 0, NULL, 0) == 0;
}

bool fault_strikes(enum fault of, const struct record *begin, int descriptor) {
  if (shared == NULL || kind != of) return false;
  /* Counted on after it has struck, so that the log's creator can tell how many there were. */
  if (atomic_load_explicit(&shared->armed, memory_order_acquire) == 0) return false;
  int saved = errno;
  bool strikes = counts(descriptor) && atomic_fetch_add(&shared->count, 1) + 1 == nth;
  errno = saved;
  if (!strikes) return false;
  atomic_store(&shared->position, begin->position);
  errno = of == FAULT_SYNC_EIO ? EIO : ENOSPC;
  return true;
}
