-- Events: one narrow row each, because every claim and every settle writes
-- the row again. Bodies are written once and read once, so they are apart.
-- Times are milliseconds of Unix time.
CREATE TABLE ichido_events (
	seq         INTEGER PRIMARY KEY,           -- order of acceptance
	hash        BLOB    NOT NULL UNIQUE,       -- 16 bytes: the identity; decides what is a duplicate
	source      TEXT    NOT NULL,
	state       INTEGER NOT NULL DEFAULT 0,    -- 0 pending, 1 claimed, 2 done, 3 dead, 4 quarantined
	due         INTEGER NOT NULL,              -- pending: next attempt; claimed: end of the lease; else 0
	token       INTEGER NOT NULL DEFAULT 0,    -- fence of the last claim until it is settled, else 0
	started     INTEGER NOT NULL DEFAULT 0,    -- of a lapsed claim: 1 a handler was running, 2 it had ended
	attempts    INTEGER NOT NULL DEFAULT 0,
	deaths      INTEGER NOT NULL DEFAULT 0,    -- in a row: processes that ended while working on it
	size        INTEGER NOT NULL,              -- length of the body, bytes
	flags       INTEGER NOT NULL,              -- bit 1 type_signed, bits 2-3 strength, from bit 8 secret
	fingerprint BLOB    NOT NULL,              -- 32 bytes
	type        TEXT    NOT NULL,
	scheme      TEXT    NOT NULL,
	received_at INTEGER NOT NULL,
	signed_at   INTEGER,
	key         TEXT,                          -- NULL: it is the fingerprint in hexadecimal digits
	settled_at  INTEGER NOT NULL DEFAULT 0,
	outcome     TEXT    NOT NULL DEFAULT '',
	cause       TEXT    NOT NULL DEFAULT '',
	copies      INTEGER NOT NULL DEFAULT 0,
	replays     INTEGER NOT NULL DEFAULT 0,
	purged      INTEGER NOT NULL DEFAULT 0     -- 1: the body is gone
) STRICT;

-- What can be claimed. These three hold only rows in work, so they stay small
-- however many events are kept.
CREATE INDEX ichido_due      ON ichido_events (source, due)         WHERE state = 0 AND deaths = 0;
CREATE INDEX ichido_suspects ON ichido_events (source, deaths, due) WHERE state = 0 AND deaths > 0;
CREATE INDEX ichido_leases   ON ichido_events (due)                 WHERE state = 1;

-- What can be purged, and what is counted. An event enters it once, at its
-- end, beside the last one that did.
CREATE INDEX ichido_settled  ON ichido_events (source, state, purged, settled_at) WHERE state > 1;

-- What somebody should look at: few among many that went well.
CREATE INDEX ichido_failed   ON ichido_events (state) WHERE state > 2;

CREATE TABLE ichido_bodies (
	seq       INTEGER PRIMARY KEY,
	header    BLOB NOT NULL,
	body      BLOB NOT NULL,
	confirmed BLOB
) STRICT;

-- Inline claims. A row with completed_at is completed, any other is held.
CREATE TABLE ichido_claims (
	key          TEXT PRIMARY KEY,
	token        TEXT    NOT NULL,
	owner        TEXT    NOT NULL,             -- the process that claimed
	claimed_at   INTEGER NOT NULL,
	completed_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX ichido_claims_completed ON ichido_claims (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX ichido_claims_held      ON ichido_claims (claimed_at, key) WHERE completed_at IS NULL;

-- Counters that outlive what they count.
--   purged  records removed by Purge
--   seq     the highest seq ever given out, written before it could be lost
CREATE TABLE ichido_meta (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO ichido_meta (name, value) VALUES ('purged', 0), ('seq', 0);
