/*
 * A planted fault: a sync of a file whose path matches DURATUNE_TEST_UNSYNCED (fnmatch(3)) does nothing and succeeds.
 *
 * It is stacked before the recorder, so what it swallows is in no write log either.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_swallowed(int descriptor) {
  const char *pattern = getenv("DURATUNE_TEST_UNSYNCED");
  char link[64], path[PATH_MAX];
  if (pattern == NULL) return false;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t bytes = readlink(link, path, sizeof path - 1);
  if (bytes < 0) return false;
  path[bytes] = '\0';
  return fnmatch(pattern, path, 0) == 0;
}

static int call(const char *name, int descriptor) {
  int (*next)(int);
  *(void **)&next = dlsym(RTLD_NEXT, name);
  return next(descriptor);
}

int fsync(int descriptor) { return is_swallowed(descriptor) ? 0 : call("fsync", descriptor); }

int fdatasync(int descriptor) { return is_swallowed(descriptor) ? 0 : call("fdatasync", descriptor); }
