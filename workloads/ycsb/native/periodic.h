// A thread that calls a function every so many milliseconds until it goes out of scope.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace duratune {

class Periodic {
 public:
  Periodic(std::chrono::microseconds interval, std::function<void()> call)
      : thread_([this, interval, call = std::move(call)] { run(interval, call); }) {}

  ~Periodic() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    wakes_.notify_all();
    thread_.join();
  }

  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

 private:
  void run(std::chrono::microseconds interval, const std::function<void()>& call) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!wakes_.wait_for(lock, interval, [this] { return ends_; })) {
      lock.unlock();
      call();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wakes_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace duratune
