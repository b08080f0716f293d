/*
 * exercise ROOT SEED THREADS STEPS PROCESSES: every interposed call, from many threads and processes at once.
 *
 * Threads fight for the same names, the same descriptor's position, the same end of file and overlapping ranges, so
 * that a log whose order is not the kernel's gives other bytes when it is replayed. Errors that such a fight causes
 * (a name already gone) are expected; any other ends the program with 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int steps, shared_position, shared_end, shared_range, folder;

struct worker {
  uint64_t random;
  int number;
};

static uint32_t draw(struct worker *worker, uint32_t below) {
  worker->random = worker->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(worker->random >> 33) % below;
}

static void must(int ok, const char *what) {
  if (ok || errno == ENOENT || errno == EEXIST || errno == ENOTEMPTY) return;
  perror(what);
  exit(1);
}

static void fill(struct worker *worker, char *to, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) to[i] = (char)('a' + draw(worker, 26));
}

/* A descriptor in one of the ways to get one. */
static int open_somehow(struct worker *worker, const char *name, int flags) {
  int file = draw(worker, 2) ? openat(folder, name, flags, 0600) : -1;
  char path[64];
  snprintf(path, sizeof path, draw(worker, 2) ? "link/../link/%s" : "./folder//%s", name);
  if (file < 0) file = open(path, flags, 0600);
  must(file >= 0, "open");
  if (file < 0) return -1;
  int other = -1;
  switch (draw(worker, 5)) {
    case 0: other = dup(file); break;
    case 1: other = fcntl(file, F_DUPFD, 100); break;
    case 2: other = dup2(file, 500 + worker->number); break;
    case 3: other = dup3(file, 500 + worker->number, O_CLOEXEC); break;
    default: return file;
  }
  must(other >= 0, "dup");
  close(file);
  return other;
}

static void change_file(struct worker *worker, int file) {
  char data[9000];
  size_t bytes = draw(worker, 3) ? draw(worker, 200) : draw(worker, sizeof data);
  off_t offset = draw(worker, 20000);
  fill(worker, data, bytes);
  struct iovec parts[3] = {{data, bytes / 3}, {data + bytes / 3, 0}, {data + bytes / 3, bytes - bytes / 3}};
  switch (draw(worker, 13)) {
    case 0: must(write(file, data, bytes) >= 0, "write"); break;
    case 1: must(pwrite(file, data, bytes, offset) >= 0, "pwrite"); break;
    case 2: must(writev(file, parts, 3) >= 0, "writev"); break;
    case 3: must(pwritev(file, parts, 3, offset) >= 0, "pwritev"); break;
    case 4: must(pwritev2(file, parts, 3, -1, 0) >= 0, "pwritev2"); break;
    case 5: must(pwritev2(file, parts, 3, offset, RWF_APPEND) >= 0, "pwritev2 append"); break;
    case 6: must(ftruncate(file, offset) == 0, "ftruncate"); break;
    case 7: must(fallocate(file, 0, offset, 5000) == 0, "fallocate"); break;
    case 8: must(fallocate(file, FALLOC_FL_KEEP_SIZE, offset, 5000) == 0, "fallocate keep"); break;
    case 9: errno = posix_fallocate(file, offset, 100); must(errno == 0, "posix_fallocate"); break;
    case 10: must(fdatasync(file) == 0, "fdatasync"); break;
    case 11: must(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE) == 0, "sync_file_range"); break;
    default: must(lseek(file, draw(worker, 3000), SEEK_SET) >= 0, "lseek"); break;
  }
}

static void change_names(struct worker *worker, const char *one, const char *other) {
  char from[64], to[64];
  snprintf(from, sizeof from, "folder/%s", one);
  snprintf(to, sizeof to, "link/%s", other);
  switch (draw(worker, 9)) {
    case 0: must(rename(from, to) == 0, "rename"); break;
    case 1: must(renameat(folder, one, AT_FDCWD, to) == 0, "renameat"); break;
    case 2: must(renameat2(folder, one, folder, other, RENAME_NOREPLACE) == 0, "renameat2"); break;
    case 3: must(link(from, to) == 0, "link"); break;
    case 4: must(unlink(from) == 0, "unlink"); break;
    case 5: must(unlinkat(folder, other, 0) == 0, "unlinkat"); break;
    case 6: must(remove(to) == 0, "remove"); break;
    case 7: must(truncate(from, draw(worker, 9000)) == 0, "truncate"); break;
    default: must(fsync(folder) == 0, "fsync of a folder"); break;
  }
}

static void change_folders(struct worker *worker) {
  char name[32], other[16];
  snprintf(name, sizeof name, "sub%u", draw(worker, 3) % 3u);
  snprintf(other, sizeof other, "sub%u", draw(worker, 3));
  must(mkdirat(folder, name, 0700) == 0, "mkdirat");
  must(renameat(folder, name, folder, other) == 0, "rename of a folder");
  snprintf(name, sizeof name, "folder/%s/", other);
  must(draw(worker, 2) ? rmdir(name) == 0 : unlinkat(folder, other, AT_REMOVEDIR) == 0, "rmdir");
}

static void *work(void *argument) {
  struct worker *worker = argument;
  char data[300], one[16], other[16];
  for (int step = 0; step < steps; step++) {
    snprintf(one, sizeof one, "f%u", draw(worker, 6));
    snprintf(other, sizeof other, "f%u", draw(worker, 6));
    size_t bytes = 1 + draw(worker, sizeof data - 1);
    fill(worker, data, bytes);
    must(write(shared_position, data, bytes) == (ssize_t)bytes, "write");
    must(write(shared_end, data, bytes) == (ssize_t)bytes, "append");
    must(pwrite(shared_range, data, bytes, draw(worker, 500)) == (ssize_t)bytes, "pwrite");
    int flags = O_RDWR | (draw(worker, 2) ? O_CREAT : 0) | (draw(worker, 6) ? 0 : O_TRUNC) |
                (draw(worker, 4) ? 0 : O_APPEND) | (draw(worker, 9) ? 0 : O_DSYNC);
    int file = open_somehow(worker, one, flags);
    if (file >= 0) {
      for (int i = 0; i < 3; i++) change_file(worker, file);
      if (draw(worker, 4) == 0) must(fcntl(file, F_SETFL, O_APPEND) == 0, "F_SETFL");
      must(write(file, data, bytes) == (ssize_t)bytes, "write");
      must(close(file) == 0, "close");
    }
    change_names(worker, one, other);
    if (draw(worker, 4) == 0) change_folders(worker);
  }
  return NULL;
}

static void run_threads(uint64_t seed, int threads) {
  pthread_t *all = calloc((size_t)threads, sizeof *all);
  struct worker *workers = calloc((size_t)threads, sizeof *workers);
  for (int i = 0; i < threads; i++) {
    workers[i] = (struct worker){seed * 1000003u + (uint64_t)i, i};
    pthread_create(&all[i], NULL, work, &workers[i]);
  }
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
  free(all);
  free(workers);
}

/* A spawned program: it inherits descriptors that its own recorder must find. */
static void spawn_heir(void) {
  char descriptor[16];
  snprintf(descriptor, sizeof descriptor, "%d", shared_end);
  char *arguments[] = {"exercise", "heir", descriptor, NULL};
  extern char **environ;
  pid_t child;
  errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
  must(errno == 0, "posix_spawn");
  waitpid(child, NULL, 0);
}

int main(int count, char **arguments) {
  if (count == 3) return write(atoi(arguments[2]), "from the heir", 13) == 13 ? 0 : 1;
  if (count != 6 || chdir(arguments[1]) != 0) return 2;
  uint64_t seed = strtoull(arguments[2], NULL, 10);
  int threads = atoi(arguments[3]), processes = atoi(arguments[5]);
  steps = atoi(arguments[4]);
  must(mkdir("folder", 0700) == 0 && mkdir("folder/deep", 0700) == 0, "mkdir");
  must(symlink("folder", "link") == 0, "symlink");
  folder = open("folder", O_RDONLY | O_DIRECTORY);
  shared_position = creat("position", 0600);
  shared_end = open("end", O_WRONLY | O_CREAT | O_APPEND, 0600);
  shared_range = open("range", O_RDWR | O_CREAT | O_EXCL, 0600);
  must(folder >= 0 && shared_position >= 0 && shared_end >= 0 && shared_range >= 0, "open");
  for (int i = 0; i < processes; i++) {
    pid_t child = fork();
    if (child == 0) {
      run_threads(seed + 1u + (uint64_t)i, threads);
      _exit(0);
    }
  }
  run_threads(seed, threads);
  int failures = 0, status;
  while (wait(&status) > 0) failures += status != 0;
  spawn_heir();
  return failures != 0;
}
