#include "runner.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "client.h"
#include "event.h"
#include "periodic.h"

namespace duratune {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kPoll{1000};
// How long clients may take to end once the load is over: a server that hangs keeps them for ever.
constexpr milliseconds kClientsEnd{300};

// The application's own habits beside the load: flushing or syncing the WAL, and the sampling of the sync counter.
class Background {
 public:
  Background(Database& database, const Plan& plan, Ledger& ledger) : database_(database), header_(ledger.header()) {
    if (plan.flush_wal_every_ms > 0) {
      flush_.emplace(milliseconds(plan.flush_wal_every_ms), [this] { flush(false); });
    }
    if (plan.sync_wal_every_ms > 0) {
      sync_.emplace(milliseconds(plan.sync_wal_every_ms), [this] { flush(true); });
    }
    if (plan.ticker_ms > 0 && ledger.records() && database.wal_syncs()) {
      sample_syncs();
      ticker_.emplace(milliseconds(plan.ticker_ms), [this] { sample_syncs(); });
    }
  }

  void stop() {
    flush_.reset();
    sync_.reset();
    if (ticker_) {
      ticker_.reset();
      sample_syncs();
    }
  }

  uint64_t calls() const { return calls_; }
  uint64_t errors() const { return errors_; }

 private:
  void flush(bool sync) {
    ++calls_;
    // RocksDB counts a sync before it tries it, and after a failure those too that it does not try (db_impl.cc,
    // SyncWAL): the count is not read meanwhile, and not any more after one that failed.
    std::unique_lock<std::mutex> lock(syncing_, std::defer_lock);
    if (sync) lock.lock();
    if (database_.flush_wal(sync).empty()) return;
    ++errors_;
    if (sync) counts_attempts_ = true;
  }

  void sample_syncs() {
    std::lock_guard<std::mutex> lock(syncing_);
    if (counts_attempts_) return;
    const uint64_t before = dt_ledger_position(header_);
    const uint64_t counter = database_.wal_syncs().value_or(0);
    dt_ledger_store_sync_sample(header_, before, counter, dt_ledger_position(header_));
  }

  Database& database_;
  dt_ledger_header* header_;
  std::mutex syncing_;
  bool counts_attempts_ = false;
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> errors_{0};
  std::optional<Periodic> flush_;
  std::optional<Periodic> sync_;
  std::optional<Periodic> ticker_;
};

// Provokes each item once its fraction of the operations is done.
class Provoker {
 public:
  Provoker(Database& database, const Plan& plan, Ledger& ledger) {
    if (!plan.provocations.empty()) {
      thread_.emplace(kPoll, [this, &database, &plan, &ledger] { provoke_due(database, plan, ledger); });
    }
  }

 private:
  void provoke_due(Database& database, const Plan& plan, Ledger& ledger) {
    while (next_ < plan.provocations.size()) {
      const Provocation& item = plan.provocations[next_];
      if (static_cast<double>(ledger.operations()) < item.fraction * static_cast<double>(plan.operations)) return;
      const uint64_t begin = dt_ledger_position(ledger.header());
      const std::string error = database.provoke(item.what);
      Json json = event("provoked");
      json.text("what", item.what).number("fraction", item.fraction);
      json.count("begin_position", begin).count("end_position", dt_ledger_position(ledger.header()));
      emit(json.text("error", error));
      ++next_;
    }
  }

  size_t next_ = 0;
  std::optional<Periodic> thread_;
};

class Run {
 public:
  Run(Database& database, const Workload& workload, const Plan& plan, Ledger& ledger)
      : database_(database),
        plan_(plan),
        ledger_(ledger),
        inserted_(workload.record_count),
        shared_(workload, plan, ledger, inserted_) {
    for (uint32_t i = 0; i < plan.threads; ++i) clients_.push_back(std::make_unique<Client>(shared_, database, i));
  }

  void go() {
    Background background(database_, plan_, ledger_);
    std::optional<Provoker> provoker(std::in_place, database_, plan_, ledger_);
    start();
    warm_up();
    measure(background);
    if (plan_.operations > 0) await_operations();
    if (!plan_.stop_after || shared_.is_lost) go_on_until_killed();
    shared_.ends = true;
    for (std::thread& thread : threads_) thread.join();
    provoker.reset();
    background.stop();
    database_.close();
    emit(event("closed").count("operations", ledger_.operations()).raw("written", written()).text("why", stop_name()));
  }

 private:
  void start() {
    shared_.running = plan_.threads;
    if (plan_.warmup_s == 0) shared_.phase = Phase::measuring;
    measured_from_ns_ = dt_monotonic_ns();
    begin_position_ = dt_ledger_position(ledger_.header());
    for (auto& client : clients_) threads_.emplace_back([&client] { client->run(); });
  }

  bool over() const {
    return shared_.running.load() == 0 || shared_.ends || dt_ledger_stop_reason(ledger_.header()) != DT_STOP_NONE;
  }

  void wait_s(double seconds) const {
    const uint64_t until = dt_monotonic_ns() + static_cast<uint64_t>(seconds * 1e9);
    for (uint64_t now = dt_monotonic_ns(); now < until && !over(); now = dt_monotonic_ns()) {
      const auto rest = microseconds((until - now) / 1000 + 1);
      std::this_thread::sleep_for(std::min<microseconds>(rest, milliseconds(5)));
    }
  }

  void warm_up() {
    emit(event("warming").number("seconds", plan_.warmup_s));
    if (plan_.warmup_s == 0) return;
    wait_s(plan_.warmup_s);
    begin_position_ = dt_ledger_position(ledger_.header());
    measured_from_ns_ = dt_monotonic_ns();
    shared_.phase = Phase::measuring;
  }

  void measure(const Background& background) {
    emit(event("measuring").count("position", begin_position_).count("ns", measured_from_ns_));
    if (plan_.measure_s > 0) {
      wait_s(plan_.measure_s);
    } else {
      await_reached();
    }
    const uint64_t end_ns = dt_monotonic_ns();
    const uint64_t end_position = dt_ledger_position(ledger_.header());
    shared_.phase = Phase::measured;
    Measurement all;
    for (auto& client : clients_) all.add(client->measurement());
    const double seconds = static_cast<double>(end_ns - measured_from_ns_) / 1e9;
    Json json = event("measured");
    json.number("seconds", seconds).count("operations", all.requests);
    json.number("throughput_per_s", static_cast<double>(all.requests) / seconds);
    json.count("acknowledged_writes", all.acknowledged_writes);
    json.count("begin_position", begin_position_).count("end_position", end_position);
    json.count("begin_ns", measured_from_ns_).count("end_ns", end_ns);
    json.count("background_calls", background.calls()).count("background_errors", background.errors());
    json.text("last_error", all.last_error).raw("per_operation", all.operations_json());
    if (database_.wal_syncs()) json.count("wal_syncs", *database_.wal_syncs());
    emit(json);
  }

  void await_reached() const {
    while (!over() && (plan_.operations == 0 || ledger_.operations() < plan_.operations)) {
      std::this_thread::sleep_for(kPoll);
    }
  }

  void await_operations() {
    await_reached();
    if (ledger_.operations() < plan_.operations) return;
    emit(event("reached").count("operations", ledger_.operations()).count("position", dt_ledger_position(ledger_.header())));
  }

  std::string stop_name() const {
    switch (dt_ledger_stop_reason(ledger_.header())) {
      case DT_STOP_WRITE_LOG_FULL:
        return "write-log-full";
      case DT_STOP_LEDGER_FULL:
        return "ledger-full";
      case DT_STOP_ASKED:
        return "asked";
      default:
        return "";
    }
  }

  // By client.
  std::string written() const {
    std::string list = "[";
    for (const auto& client : clients_) list += (list.size() > 1 ? "," : "") + std::to_string(client->written());
    return list + "]";
  }

  std::string end_name() const {
    if (shared_.is_lost) return "connection-lost";
    const std::string why = stop_name();
    return why.empty() ? "no client is left" : why;
  }

  // The load goes on, so that the kill hits it at work. Only a full log, a full ledger, a request or a server's end
  // stops it. An engine within this process then waits for its kill; a server's client has no more to do.
  [[noreturn]] void go_on_until_killed() {
    while (!over()) std::this_thread::sleep_for(milliseconds(2));
    const uint64_t until = dt_monotonic_ns() + std::chrono::nanoseconds(kClientsEnd).count();
    while (database_.is_served() && shared_.running.load() > 0 && dt_monotonic_ns() < until) {
      std::this_thread::sleep_for(kPoll);
    }
    Measurement all;
    {
      std::lock_guard<std::mutex> lock(shared_.mutex);
      all.last_error = shared_.lost_error;
    }
    for (auto& client : clients_) all.add(client->measurement());
    emit(event("stopped").text("why", end_name()).text("last_error", all.last_error).raw("written", written()));
    // Clients that a hanging server keeps, and a provocation under way, end with the process.
    if (database_.is_served()) _exit(0);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(3600));
  }

  Database& database_;
  const Plan& plan_;
  Ledger& ledger_;
  AcknowledgedCounter inserted_;
  Shared shared_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::thread> threads_;
  uint64_t measured_from_ns_ = 0;
  uint64_t begin_position_ = 0;
};

}  // namespace

void run_workload(Database& database, const Workload& workload, const Plan& plan, Ledger& ledger) {
  Run(database, workload, plan, ledger).go();
}

}  // namespace duratune
