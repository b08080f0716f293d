/*
 * Writes and syncs from many threads of many processes, of which some call may be made to fail.
 *
 * faulty ROOT PROCESSES THREADS ROUNDS: each round of a thread is a write by each of the five calls and an fsync and an
 * fdatasync of a file of its own, and an fsync of ROOT. Prints how many calls failed with EIO, ENOSPC, and otherwise.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
  _Atomic int eio, enospc, other;
} *seen;
static const char *root;
static int rounds, process;

static void look(long result) {
  if (result >= 0) return;
  if (result != -1) abort();
  atomic_fetch_add(errno == EIO ? &seen->eio : errno == ENOSPC ? &seen->enospc : &seen->other, 1);
}

static void *work(void *number) {
  char path[4096], text[] = "0123456789";
  struct iovec part = {text, 10};
  snprintf(path, sizeof path, "%s/%d-%d.dat", root, process, *(int *)number);
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), folder = open(root, O_RDONLY | O_DIRECTORY);
  if (file < 0 || folder < 0) abort();
  for (int round = 0; round < rounds; round++) {
    look(write(file, text, 10));
    look(pwrite(file, text, 10, 1000));
    look(writev(file, &part, 1));
    look(pwritev(file, &part, 1, 2000));
    look(pwritev2(file, &part, 1, 3000, 0));
    look(fsync(file));
    look(fdatasync(file));
    look(fsync(folder));
  }
  close(folder);
  close(file);
  return NULL;
}

static void work_in_threads(int count) {
  pthread_t threads[64];
  int numbers[64];
  for (int i = 0; i < count; i++) {
    numbers[i] = i;
    if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0) abort();
  }
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  root = argv[1];
  rounds = atoi(argv[4]);
  seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (seen == MAP_FAILED) return 2;
  for (process = 0; process < atoi(argv[2]); process++) {
    pid_t child = fork();
    if (child == 0) {
      work_in_threads(atoi(argv[3]));
      return 0;
    }
  }
  int status, failed = 0;
  while (wait(&status) > 0) failed |= status;
  printf("%d %d %d\n", seen->eio, seen->enospc, seen->other);
  return failed != 0;
}
