CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row a machine; `node` is its name in the cluster once it has joined.
CREATE TABLE machines (
    id TEXT PRIMARY KEY,
    provider TEXT NOT NULL,
    cluster TEXT NOT NULL,
    node TEXT,
    uid TEXT,
    pool TEXT,
    gpus INTEGER NOT NULL,
    sku TEXT NOT NULL,
    serial TEXT,
    virtual INTEGER NOT NULL,
    reserved INTEGER NOT NULL DEFAULT 0,
    local_data TEXT,
    topology TEXT NOT NULL,
    labels TEXT NOT NULL,
    roles TEXT NOT NULL DEFAULT '[]',
    state TEXT NOT NULL,            -- running, requested, terminating, gone
    ready INTEGER NOT NULL,
    boots INTEGER NOT NULL DEFAULT 0,
    boot_id TEXT,
    image_mark TEXT,
    gpu_mark TEXT,
    marked_by TEXT,
    mark TEXT,
    uncordoned INTEGER NOT NULL DEFAULT 0,   -- someone lifted the cordon of our mark by hand
    cordon TEXT,
    hands_off TEXT,
    notice_by REAL,
    requested_by TEXT,              -- tag of the request that launched it
    launched_at REAL NOT NULL,
    ended_at REAL
) WITHOUT ROWID;
CREATE UNIQUE INDEX machines_node ON machines (cluster, node) WHERE node IS NOT NULL AND state != 'gone';
CREATE INDEX machines_tag ON machines (requested_by) WHERE requested_by IS NOT NULL;

CREATE TABLE jobs (
    cluster TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    nodes INTEGER NOT NULL,
    gpus INTEGER NOT NULL,          -- on each node
    priority INTEGER NOT NULL,
    started_at REAL NOT NULL,
    checkpoint_every REAL,          -- NULL: nobody knows of checkpoints
    cooperative INTEGER NOT NULL,
    noticed_at REAL,
    PRIMARY KEY (cluster, name)
) WITHOUT ROWID;

CREATE TABLE pods (
    uid TEXT PRIMARY KEY,
    cluster TEXT NOT NULL,
    machine TEXT,                   -- NULL: pending
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    workload TEXT NOT NULL,
    tier TEXT NOT NULL,
    pool TEXT,
    home TEXT,                      -- the only node that it can run on
    gpus INTEGER NOT NULL DEFAULT 0,
    tolerates INTEGER NOT NULL DEFAULT 0,
    budget TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    terminating INTEGER NOT NULL DEFAULT 0,
    ends_by REAL                    -- of one that is terminating: when its grace is over
) WITHOUT ROWID;
CREATE INDEX pods_machine ON pods (machine);
CREATE INDEX pods_budget ON pods (cluster, budget) WHERE budget IS NOT NULL;
CREATE INDEX pods_pending ON pods (cluster) WHERE machine IS NULL;

CREATE TABLE budgets (
    cluster TEXT NOT NULL,
    name TEXT NOT NULL,
    min_available INTEGER NOT NULL,
    PRIMARY KEY (cluster, name)
) WITHOUT ROWID;

CREATE TABLE faults (
    id INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL,
    node TEXT NOT NULL,
    machine TEXT NOT NULL,
    code TEXT NOT NULL,
    covers TEXT NOT NULL,
    cure TEXT NOT NULL,
    behaviour TEXT NOT NULL,
    present INTEGER NOT NULL,
    injected_at REAL NOT NULL,
    since REAL NOT NULL,
    cured_at REAL,
    cured_by TEXT
);
CREATE INDEX faults_machine ON faults (machine);

CREATE TABLE scripts (
    id INTEGER PRIMARY KEY,
    verb TEXT NOT NULL,
    node TEXT,                      -- NULL: any
    manner TEXT NOT NULL,
    left INTEGER,                   -- NULL: for ever
    retry_after_s REAL NOT NULL
);

CREATE TABLE timers (
    id INTEGER PRIMARY KEY,
    due_at REAL NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX timers_due ON timers (due_at, id);
CREATE INDEX timers_subject ON timers (subject, kind);

CREATE TABLE checks (
    key TEXT PRIMARY KEY,
    machine TEXT NOT NULL,
    covers TEXT NOT NULL,
    started_at REAL NOT NULL,
    boot_id TEXT,
    result TEXT
) WITHOUT ROWID;

CREATE TABLE tickets (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    provider TEXT NOT NULL,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    opened_at REAL NOT NULL
);
CREATE INDEX tickets_key ON tickets (key);

CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    thread TEXT NOT NULL,
    text TEXT NOT NULL,
    posted_at REAL NOT NULL
);
CREATE INDEX messages_key ON messages (key);

CREATE TABLE effects (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    verb TEXT NOT NULL,
    cluster TEXT NOT NULL,
    node TEXT NOT NULL,
    target TEXT NOT NULL,
    tag TEXT NOT NULL,
    pid INTEGER NOT NULL,
    applied INTEGER NOT NULL,
    manner TEXT,
    detail TEXT NOT NULL
);
CREATE INDEX effects_tag ON effects (tag);
CREATE INDEX effects_node ON effects (cluster, node);
