/*
 * Syncs that are not what they seem: loaded before the recorder, so that what is left out here is in no write log.
 *
 * DURATUNE_PLANT is "HOW WHICH PATTERN [PATTERN]": what becomes of a sync, of which syncs, and the paths that it is
 * about (fnmatch(3), with slashes like other characters; a second pattern excludes).
 *
 *   ignore       returns 0 and does nothing
 *   late:MS      returns 0 at once; another thread syncs after so many milliseconds
 *   elsewhere    syncs a new, empty file beside the right one
 *
 *   every:N      each Nth of them, counted over all processes that fork from the first
 *   first        the first of each file in each process
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { SEEN_MAX = 4096, TEXT_MAX = 256 };

static char how[TEXT_MAX], which[TEXT_MAX], pattern[TEXT_MAX], excluded[TEXT_MAX];
static atomic_long *syncs; /* shared with the children */
static ino_t seen[SEEN_MAX];
static int seen_count;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;

typedef int (*sync_call)(int);

static sync_call next_call(const char *name) { return (sync_call)(uintptr_t)dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void start(void) {
  const char *plant = getenv("DURATUNE_PLANT");
  if (plant != NULL && sscanf(plant, "%255s %255s %255s %255s", how, which, pattern, excluded) < 3) abort();
  syncs = mmap(NULL, sizeof *syncs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (syncs == MAP_FAILED) abort();
}

static bool path_of(int descriptor, char *path, size_t bytes) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, bytes - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return true;
}

static bool is_first(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return false;
  bool known = false;
  pthread_mutex_lock(&seen_lock);
  for (int i = 0; i < seen_count && !known; i++) known = seen[i] == status.st_ino;
  if (!known && seen_count < SEEN_MAX) seen[seen_count++] = status.st_ino;
  pthread_mutex_unlock(&seen_lock);
  return !known;
}

static bool is_planted(int descriptor, char *path, size_t bytes) {
  if (pattern[0] == '\0' || !path_of(descriptor, path, bytes)) return false;
  if (fnmatch(pattern, path, 0) != 0 || (excluded[0] != '\0' && fnmatch(excluded, path, 0) == 0)) return false;
  if (strcmp(which, "first") == 0) return is_first(descriptor);
  long every = strtol(which + strlen("every:"), NULL, 10);
  return every > 0 && (atomic_fetch_add(syncs, 1) + 1) % every == 0;
}

struct late {
  int descriptor;
  long milliseconds;
  sync_call call;
};

static void *sync_late(void *argument) {
  struct late late = *(struct late *)argument;
  free(argument);
  const struct timespec pause = {late.milliseconds / 1000, late.milliseconds % 1000 * 1000000};
  nanosleep(&pause, NULL);
  late.call(late.descriptor);
  close(late.descriptor);
  return NULL;
}

static int start_late(int descriptor, sync_call call) {
  struct late *late = malloc(sizeof *late);
  if (late == NULL) abort();
  *late = (struct late){dup(descriptor), strtol(how + strlen("late:"), NULL, 10), call};
  pthread_t thread;
  sigset_t all, before; /* the engine's signals are for its own threads */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  if (pthread_create(&thread, NULL, sync_late, late) != 0) abort();
  pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return 0;
}

static int sync_elsewhere(const char *path, sync_call call) {
  char other[4200];
  snprintf(other, sizeof other, "%s.beside", path);
  int descriptor = open(other, O_RDWR | O_CREAT, 0600);
  if (descriptor < 0) return 0;
  int result = call(descriptor);
  unlink(other);
  close(descriptor);
  return result;
}

static int planted(int descriptor, const char *name) {
  char path[4096];
  sync_call call = next_call(name);
  int before = errno;
  bool is_ours = is_planted(descriptor, path, sizeof path);
  errno = before;
  if (!is_ours) return call(descriptor);
  if (strncmp(how, "late:", strlen("late:")) == 0) return start_late(descriptor, call);
  return strcmp(how, "elsewhere") == 0 ? sync_elsewhere(path, call) : 0;
}

int fsync(int descriptor) { return planted(descriptor, "fsync"); }

int fdatasync(int descriptor) { return planted(descriptor, "fdatasync"); }

/* The recorder's own are as durable as a sync of everything. */
int syncfs(int descriptor) { return planted(descriptor, "syncfs"); }
