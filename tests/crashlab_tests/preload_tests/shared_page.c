/*
 * Writes pages that another thread changes meanwhile, as PostgreSQL writes pages of its shared memory.
 *
 *     shared_page FILE CALL    CALL is write, pwrite, writev, pwritev or pwritev2
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 65536, PAGES = 200 };

static volatile unsigned char page[PAGE];
static atomic_int over;

static void *change(void *unused) {
  (void)unused;
  for (unsigned char value = 1; !atomic_load(&over); value++)
    for (int i = 0; i < PAGE; i++) page[i] = value;
  return NULL;
}

static ssize_t write_page(const char *call, int descriptor, off_t offset) {
  void *bytes = (void *)page;
  const struct iovec parts[2] = {{bytes, PAGE / 2}, {(char *)bytes + PAGE / 2, PAGE / 2}};
  if (strcmp(call, "write") == 0) return write(descriptor, bytes, PAGE);
  if (strcmp(call, "writev") == 0) return writev(descriptor, parts, 2);
  if (strcmp(call, "pwritev") == 0) return pwritev(descriptor, parts, 2, offset);
  if (strcmp(call, "pwritev2") == 0) return pwritev2(descriptor, parts, 2, offset, 0);
  return pwrite(descriptor, bytes, PAGE, offset);
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int descriptor = open(arguments[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  pthread_t changer;
  if (descriptor < 0 || pthread_create(&changer, NULL, change, NULL) != 0) return 1;
  for (off_t i = 0; i < PAGES; i++)
    if (write_page(arguments[2], descriptor, i * PAGE) != PAGE) return 1;
  atomic_store(&over, 1);
  return pthread_join(changer, NULL) == 0 ? 0 : 1;
}
