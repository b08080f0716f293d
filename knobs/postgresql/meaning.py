"""Our own data about single settings: what each means for an acknowledged write and for recovery.

In our own words, after the manual's section that the catalogue cites for the setting; what was seen on a
server carries its version. What follows from several settings together is in durability.py.
"""

from __future__ import annotations

# Why a server's setting does not decide alone.
SESSION_NOTE = (
    "any session may set it for itself, and ALTER ROLE or ALTER DATABASE may set it for the session that "
    "runs the load: postgresql.conf alone does not tell what was in force"
)

MEANINGS: dict[str, str] = {
    "fsync": (
        "off: nothing is ever forced to the disk, so a power cut loses every acknowledged write that the "
        "operating system had not written by itself, in any order, and may leave a cluster that does not "
        "start or is silently damaged; a crash of the server's processes alone loses nothing"
    ),
    "synchronous_commit": (
        "off: a commit is acknowledged before its WAL is written, so a crash of the server's processes or a "
        "power cut loses the newest acknowledged commits, those of three times wal_writer_delay at most, and "
        "damages nothing; on, remote_apply, remote_write and local all wait for the local disk, and differ "
        "only in what they wait for of the standbys in synchronous_standby_names: with none "
        "named they are one"
    ),
    "full_page_writes": (
        "off: a page that a power cut tore during its write cannot be repaired from the WAL, so recovery "
        "fails or the cluster is silently damaged; on: the first change of a page after a checkpoint "
        "logs all of it"
    ),
    "wal_level": (
        "minimal: the WAL holds what a crash recovery needs and no more, so neither a standby nor a recovery "
        "from a base backup is possible; a crash itself loses nothing, because a bulk load that skips the "
        "WAL syncs its files at commit"
    ),
    "wal_sync_method": (
        "how the WAL is forced to the disk; fdatasync, fsync, open_datasync and open_sync all do it on "
        "Linux, and differ in speed"
    ),
    "commit_delay": "waits before a WAL flush so that more commits share it; a commit still waits for it",
    "commit_siblings": "how many open transactions commit_delay needs; changes no promise",
    "wal_writer_delay": (
        "bounds what synchronous_commit=off may lose: three times this at most; with every other value of "
        "synchronous_commit a commit does not wait for the WAL writer, and this changes no promise"
    ),
    "wal_writer_flush_after": (
        "under synchronous_commit=off the WAL writer also flushes after this much WAL, so at full speed the "
        "loss is bounded by volume before it is by wal_writer_delay; 0 flushes at each of its rounds"
    ),
    "wal_skip_threshold": (
        "with wal_level=minimal: from this size on a new table is synced at commit and not "
        "logged; both are safe"
    ),
    "wal_compression": "compresses full pages in the WAL; changes no promise",
    "wal_init_zero": "whether new WAL files are filled with zeros first; changes no promise",
    "wal_recycle": "whether old WAL files are renamed for reuse; changes no promise",
    "wal_log_hints": "logs full pages for hint bits too, as data checksums do; it adds, and weakens nothing",
    "wal_buffers": "WAL that no commit waits for yet stays here; changes no promise",
    "data_sync_retry": (
        "on: the server goes on after a failed fsync of a data file; the kernel may have dropped the pages, "
        "so the next checkpoint succeeds without them and their writes are lost once the WAL is recycled"
    ),
    "zero_damaged_pages": (
        "on: a page with a damaged header reads as empty, with a warning, and all its rows are gone"
    ),
    "ignore_checksum_failure": (
        "on: a page whose checksum is wrong is read nevertheless, with a warning, and its damage spreads"
    ),
    "ignore_invalid_pages": (
        "on: recovery goes on where the WAL refers to pages that do not exist, and the damage "
        "is no longer seen"
    ),
    "recovery_init_sync_method": (
        "syncfs: the sync of the whole data directory at the start after a crash is one call per file "
        "system, which reports failed writes only from Linux 5.8 on"
    ),
    "synchronous_standby_names": (
        "which standbys a commit waits for; empty: a failover may lose acknowledged commits. With a name and "
        "no such standby every commit waits for ever"
    ),
    "max_wal_size": (
        "how much WAL may lie between two checkpoints, so how much a recovery may have to replay: fewer "
        "checkpoints and a longer recovery; it is no hard limit"
    ),
    "checkpoint_timeout": (
        "the longest time between two checkpoints, so how much a recovery may have to replay: fewer "
        "checkpoints and a longer recovery; loses nothing"
    ),
    "checkpoint_completion_target": (
        "spreads a checkpoint's writes; a longer spread keeps the WAL since its start for longer, so "
        "recovery replays more; loses nothing"
    ),
    "checkpoint_flush_after": "starts writeback early with sync_file_range, which makes nothing durable",
    "bgwriter_flush_after": "starts writeback early with sync_file_range, which makes nothing durable",
    "backend_flush_after": "starts writeback early with sync_file_range, which makes nothing durable",
    "recovery_prefetch": "reads ahead during recovery, so that it takes less time; changes nothing else",
    "restart_after_crash": "off: after the crash of a backend the server stays down; loses nothing",
    "archive_mode": "whether finished WAL is archived; a crash of this server needs no archive",
    "autovacuum": "off: dead rows stay until somebody vacuums; no acknowledged write depends on it",
    "ignore_system_indexes": "on: reads of the catalogue avoid its indexes, which are still maintained",
    "debug_io_direct": "opens files with O_DIRECT; the syncs stay",
    "hot_standby": "whether queries run during a standby's recovery; changes no promise",
    "track_commit_timestamp": "keeps commit times; changes no promise",
    "session_replication_role": (
        "replica: triggers and foreign keys do not fire, so rows that contradict each other are accepted"
    ),
    "temp_buffers": "pages of temporary tables, which no crash keeps",
    "io_method": "how data files are read and written; what is synced when stays the same",
    "summarize_wal": "writes summaries for incremental backups; changes no promise",
}
