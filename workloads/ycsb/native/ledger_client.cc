#include "ledger_client.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "fault.h"

namespace duratune {

Ledger::Ledger(const std::string& path, uint32_t clients) {
  if (path.empty()) {
    const uint64_t bytes = dt_ledger_entries_offset(clients);
    own_.reset(std::aligned_alloc(DT_LEDGER_CLIENT_BYTES, bytes));
    if (!own_) throw std::bad_alloc();
    std::memset(own_.get(), 0, bytes);
    header_ = static_cast<dt_ledger_header*>(own_.get());
    header_->position = 1;
    header_->clients = clients;
    return;
  }
  map(path);
  if (header_->clients < clients) {
    throw invalid_input("the ledger has room for " + std::to_string(header_->clients) + " clients, not for " +
                        std::to_string(clients));
  }
  operations_before_ = dt_ledger_operations(header_);
}

void Ledger::map(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw invalid_input("cannot open the ledger " + path + ": " + std::strerror(errno));
  struct stat about;
  const bool is_known = fstat(fd, &about) == 0;
  const auto bytes = is_known ? static_cast<uint64_t>(about.st_size) : 0;
  void* base = bytes < DT_LEDGER_HEADER_BYTES
                   ? MAP_FAILED
                   : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (base == MAP_FAILED) throw invalid_input(path + " is no ledger");
  mapped_bytes_ = bytes;
  header_ = static_cast<dt_ledger_header*>(base);
  if (!dt_ledger_is_valid(base, bytes)) {
    munmap(base, bytes);
    throw invalid_input(path + " is no ledger, or is cut short");
  }
}

Ledger::~Ledger() {
  if (mapped_bytes_ != 0) munmap(header_, mapped_bytes_);
}

}  // namespace duratune
