/*
 * duratune-canary ROOT: make ROOT/canary, do one of each recorded operation there, print what was done.
 *
 * It is run under the recorder before the engine is. Its list is compared with the log (crashlab/preload/recorder.py):
 * an operation that the log lacks means that the recorder does not see that kind of call on this machine, and then no
 * verdict is drawn. Its files also say which bytes must be there, and which must be gone, in a `synced` crash state.
 *
 * Promised: one thread, one process, every call in the order of the list, with the calls' own results.
 * Not covered: what the recorder cannot record (shared mappings, io_uring); those it counts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static bool first = true;

static _Noreturn void fail(const char *call, const char *name) {
  fprintf(stderr, "duratune-canary: %s %s: %s\n", call, name, strerror(errno));
  exit(3);
}

/* One operation of the list; the members after `kind` come from the format. Names and data are plain ASCII. */
__attribute__((format(printf, 2, 3))) static void did(const char *kind, const char *members, ...) {
  va_list rest;
  printf("%s\n  {\"kind\": \"%s\", ", first ? "" : ",", kind);
  va_start(rest, members);
  vprintf(members, rest);
  va_end(rest);
  printf("}");
  first = false;
}

static uint64_t inode_of(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) fail("fstat", "");
  return status.st_ino;
}

static uint64_t inode_at(const char *name) {
  struct stat status;
  if (lstat(name, &status) != 0) fail("lstat", name);
  return status.st_ino;
}

static int open_new(const char *name, int flags) {
  int file = open(name, O_RDWR | O_CREAT | O_EXCL | flags, 0600);
  if (file < 0) fail("create", name);
  did("create", "\"path\": \"canary/%s\", \"inode\": %" PRIu64, name, inode_of(file));
  return file;
}

static void wrote(const char *call, int file, ssize_t result, off_t offset, const char *data, int flags) {
  if (result != (ssize_t)strlen(data)) fail(call, "");
  did("write", "\"call\": \"%s\", \"inode\": %" PRIu64 ", \"a\": %jd, \"data\": \"%s\", \"flags\": %d", call,
      inode_of(file), (intmax_t)offset, data, flags);
}

static void write_text(int file, const char *data, int flags) {
  off_t offset = lseek(file, 0, SEEK_CUR);
  wrote("write", file, write(file, data, strlen(data)), offset, data, flags);
}

static void sync_file(int file) {
  if (fsync(file) != 0) fail("fsync", "");
  did("fsync", "\"inode\": %" PRIu64 ", \"flags\": 0", inode_of(file));
}

static void sync_data(int file) {
  if (fdatasync(file) != 0) fail("fdatasync", "");
  did("fdatasync", "\"inode\": %" PRIu64 ", \"flags\": 0", inode_of(file));
}

static void sync_folder(const char *name) {
  int folder = open(name, O_RDONLY | O_DIRECTORY);
  if (folder < 0 || fsync(folder) != 0) fail("fsync", name);
  did("fsync", "\"inode\": %" PRIu64 ", \"flags\": 2", inode_of(folder));
  uint64_t inode = inode_of(folder);
  close(folder);
  did("close", "\"inode\": %" PRIu64, inode);
}

static void close_file(int file) {
  uint64_t inode = inode_of(file);
  if (close(file) != 0) fail("close", "");
  did("close", "\"inode\": %" PRIu64, inode);
}

static void resize(int file, off_t size) {
  if (ftruncate(file, size) != 0) fail("ftruncate", "");
  did("truncate", "\"call\": \"ftruncate\", \"inode\": %" PRIu64 ", \"a\": %jd", inode_of(file), (intmax_t)size);
}

/* Every way to change a file's bytes and size. */
static void change_bytes(void) {
  int file = open_new("bytes", 0);
  write_text(file, "write.", 0);
  wrote("pwrite", file, pwrite(file, "pwrite.", 7, 6), 6, "pwrite.", 0);
  if (lseek(file, 13, SEEK_SET) != 13) fail("lseek", "bytes");
  struct iovec parts[2] = {{"wri", 3}, {"tev.", 4}};
  wrote("writev", file, writev(file, parts, 2), 13, "writev.", 0);
  parts[0] = (struct iovec){"pwri", 4};
  wrote("pwritev", file, pwritev(file, parts, 2, 20), 20, "pwritev.", 0);
  resize(file, 21);
  resize(file, 64);
  /* FALLOC_FL_KEEP_SIZE; a file system without it (NFS, some of FUSE) still lets the call be recorded. */
  int result = fallocate(file, 1, 0, 4096);
  did("fallocate", "\"inode\": %" PRIu64 ", \"a\": 0, \"b\": 4096, \"flags\": 1, \"result\": %d", inode_of(file),
      result == 0 ? 0 : -errno);
  sync_data(file);
  result = sync_file_range(file, 0, 64, SYNC_FILE_RANGE_WRITE);
  did("sync_file_range", "\"inode\": %" PRIu64 ", \"a\": 0, \"b\": 64, \"result\": %d", inode_of(file),
      result == 0 ? 0 : -errno);
  close_file(file);
  file = open("bytes", O_WRONLY | O_APPEND);
  if (file < 0) fail("open", "bytes");
  wrote("write to the end", file, write(file, "append.", 7), 64, "append.", 0);
  close_file(file);
  if (truncate("bytes", 70) != 0) fail("truncate", "bytes");
  did("truncate", "\"call\": \"truncate\", \"inode\": %" PRIu64 ", \"a\": 70", inode_at("bytes"));
  file = open("bytes", O_WRONLY | O_TRUNC);
  if (file < 0) fail("open", "bytes");
  did("truncate", "\"call\": \"open with O_TRUNC\", \"inode\": %" PRIu64 ", \"a\": 0", inode_of(file));
  close_file(file);
  file = open_new("own-sync", O_DSYNC);
  write_text(file, "its own sync.", 1);
  close_file(file);
}

/* Every way to change a name. */
static void change_names(void) {
  close_file(open_new("name", 0));
  close_file(open_new("target", 0));
  uint64_t inode = inode_at("name"), replaced = inode_at("target");
  if (rename("name", "target") != 0) fail("rename", "name");
  did("rename", "\"path\": \"canary/name\", \"new_path\": \"canary/target\", \"inode\": %" PRIu64 ", \"a\": %" PRIu64,
      inode, replaced);
  if (link("target", "second") != 0) fail("link", "target");
  did("link", "\"path\": \"canary/target\", \"new_path\": \"canary/second\", \"inode\": %" PRIu64, inode);
  if (unlink("target") != 0) fail("unlink", "target");
  did("unlink", "\"path\": \"canary/target\", \"inode\": %" PRIu64, inode);
  if (mkdir("folder", 0700) != 0) fail("mkdir", "folder");
  inode = inode_at("folder");
  did("mkdir", "\"path\": \"canary/folder\", \"inode\": %" PRIu64, inode);
  if (rmdir("folder") != 0) fail("rmdir", "folder");
  did("rmdir", "\"path\": \"canary/folder\", \"inode\": %" PRIu64, inode);
}

/* What a power cut leaves; the names of all three are committed, so that only their content is in question. */
static void leave_evidence(void) {
  int synced = open_new("synced", 0);
  write_text(synced, "kept by its fsync.", 0);
  sync_file(synced);
  close_file(synced);
  int both = open_new("half", 0);
  write_text(both, "kept.", 0);
  sync_file(both);
  int unsynced = open_new("unsynced", 0);
  sync_folder(".");
  sync_folder("..");
  write_text(both, "lost.", 0);
  close_file(both);
  write_text(unsynced, "lost without a sync.", 0);
  close_file(unsynced);
}

int main(int count, char **arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: duratune-canary ROOT\n");
    return 2;
  }
  if (chdir(arguments[1]) != 0) fail("chdir", arguments[1]);
  printf("{\"schema\": 1, \"pid\": %d, \"operations\": [", (int)getpid());
  if (mkdir("canary", 0700) != 0) fail("mkdir", "canary");
  did("mkdir", "\"path\": \"canary\", \"inode\": %" PRIu64, inode_at("canary"));
  if (chdir("canary") != 0) fail("chdir", "canary");
  change_bytes();
  change_names();
  leave_evidence();
  printf("\n],\n\"files\": [\n"
         "  {\"path\": \"canary/own-sync\", \"survives\": \"its own sync.\", \"lost\": \"\"},\n"
         "  {\"path\": \"canary/synced\", \"survives\": \"kept by its fsync.\", \"lost\": \"\"},\n"
         "  {\"path\": \"canary/half\", \"survives\": \"kept.\", \"lost\": \"lost.\"},\n"
         "  {\"path\": \"canary/unsynced\", \"survives\": \"\", \"lost\": \"lost without a sync.\"}\n]}\n");
  return fflush(stdout) == 0 ? 0 : 3;
}
