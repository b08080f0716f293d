/*
 * Where a path leads: absolute, free of symbolic links, and whether that is below the recorded root.
 *
 * Only calls that change names come here, and opens that create or empty a file; they are few. realpath needs no
 * descriptor, so an engine at its limit of open files behaves as it would unrecorded.
 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *place_below_root(const char *absolute) {
  const char *root = recorder_root();
  size_t bytes = strlen(root);
  if (strcmp(root, "/") == 0) return absolute[0] == '/' ? absolute + 1 : NULL;
  if (strncmp(absolute, root, bytes) != 0) return NULL;
  if (absolute[bytes] == '\0') return absolute + bytes;
  return absolute[bytes] == '/' ? absolute + bytes + 1 : NULL;
}

/* `path` as seen from `folder`, without trailing slashes; false if it does not fit. */
static bool from_folder(char out[PATH_MAX], int folder, const char *path) {
  int bytes;
  if (path[0] == '/' || folder == AT_FDCWD)
    bytes = snprintf(out, PATH_MAX, "%s", path);
  else
    bytes = snprintf(out, PATH_MAX, "/proc/self/fd/%d/%s", folder, path);
  if (bytes <= 0 || bytes >= PATH_MAX) return false;
  while (bytes > 1 && out[bytes - 1] == '/') out[--bytes] = '\0';
  return true;
}

/* Resolve the folder of `path` and put the last component behind it. */
static bool resolve_folder(char out[PATH_MAX], char path[PATH_MAX]) {
  char *slash = strrchr(path, '/');
  char *name = slash == NULL ? path : slash + 1;
  if (strcmp(name, "") == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return realpath(path, out) != NULL;
  char *resolved;
  if (slash == NULL) {
    resolved = realpath(".", out);
  } else if (slash == path) {
    resolved = strcpy(out, "/");
  } else {
    *slash = '\0';
    resolved = realpath(path, out);
  }
  if (resolved == NULL) return false;
  size_t bytes = strlen(out);
  return snprintf(out + bytes, PATH_MAX - bytes, "%s%s", bytes > 1 ? "/" : "", name) < (int)(PATH_MAX - bytes);
}

/* Replace a symbolic link at the end of `place` by what it names, which may not exist yet. */
static bool follow_link(struct place *place) {
  char target[PATH_MAX];
  for (int links = 0; links < 40; links++) {
    if (!place->exists || !S_ISLNK(place->status.st_mode)) return true;
    ssize_t bytes = readlink(place->absolute, target, sizeof target - 1);
    if (bytes <= 0) return false;
    target[bytes] = '\0';
    char joined[PATH_MAX];
    char *slash = strrchr(place->absolute, '/');
    int fits = target[0] == '/' ? snprintf(joined, sizeof joined, "%s", target)
                                : snprintf(joined, sizeof joined, "%.*s/%s", (int)(slash - place->absolute),
                                           place->absolute, target);
    if (fits >= (int)sizeof joined || !resolve_folder(place->absolute, joined)) return false;
    place_look(place);
  }
  return false;
}

void place_look(struct place *place) {
  place->exists = fstatat(AT_FDCWD, place->absolute, &place->status, AT_SYMLINK_NOFOLLOW) == 0;
}

bool place_find(struct place *place, int folder, const char *path, bool follow) {
  int saved = errno;
  char seen[PATH_MAX];
  place->relative = NULL;
  place->exists = false;
  /* What cannot be resolved cannot be called either: the call itself will say why. */
  if (path != NULL && from_folder(seen, folder, path) && resolve_folder(place->absolute, seen)) {
    place_look(place);
    if (!follow || follow_link(place)) place->relative = place_below_root(place->absolute);
  }
  errno = saved;
  return place->relative != NULL;
}
