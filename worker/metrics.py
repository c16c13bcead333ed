"""What the processes count, for Prometheus. Labels are few and bounded: never a node, never free text."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

EVENTS = Counter(
    "medevac_events_total", "Parts of deliveries by how they were taken", ["source", "outcome"]
)  # fmt: skip
DELIVERIES = Counter("medevac_deliveries_total", "HTTP deliveries by source and status", ["source", "status"])
DELIVERY_SECONDS = Histogram(
    "medevac_delivery_seconds",
    "From a delivery's first byte to its answer",
    ["source"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
REFUSALS = Counter("medevac_refusals_total", "Refused deliveries and parts by source and reason", ["source", "reason"])
EMPTY = Counter("medevac_empty_deliveries_total", "Deliveries that were read and held nothing", ["source"])
HELD_BACK = Counter(
    "medevac_held_back_total", "Parts that senders say they held back, by whether they were had", ["source", "outcome"]
)
INBOX_HELD = Counter(
    "medevac_inbox_held_total",
    "Parts that went to the inbox because Temporal had not taken them, or for an unknown node",
)
INBOX_DRAINED = Counter("medevac_inbox_drained_total", "Inbox items by what became of them", ["outcome"])
INBOX_WAITING = Gauge("medevac_inbox_waiting", "Items in the inbox, as the draining process last saw it")
INBOX_OLDEST_SECONDS = Gauge("medevac_inbox_oldest_seconds", "Age of the inbox's oldest item")
DEAD_LETTERS = Gauge("medevac_dead_letters", "Refused payloads kept that nobody has submitted again")
HANDSHAKES = Counter("medevac_handshakes_total", "Subscriptions that asked to be confirmed", ["source", "outcome"])
ASKED_BACK = Counter(
    "medevac_asked_back_total", "Senders asked for parts that they had held back", ["source", "outcome"]
)
MESSAGES = Counter("medevac_queue_messages_total", "Messages of queues by what became of them", ["queue", "outcome"])
RECEIVED = Gauge(
    "medevac_queue_received_timestamp_seconds", "When this process last received from the queue", ["queue"]
)
POLLS = Counter("medevac_polls_total", "Questions to monitors that only answer when asked", ["poller", "outcome"])
WATCHED = Counter(
    "medevac_watched_total", "What a watcher had to say, and how that went", ["watcher", "kind", "outcome"]
)
WATCH_LISTS = Counter("medevac_watch_lists_total", "Listings of a watcher by why", ["watcher", "kind", "why"])
WATCH_HEARD = Gauge("medevac_watch_heard_timestamp_seconds", "When the watched side last answered", ["watcher", "kind"])
LEADING = Gauge("medevac_leading", "1 while this process is the one that does it", ["name"])
CHAT = Counter("medevac_chat_messages_total", "Messages posted in a chat or changed there", ["kind", "outcome"])
CHAT_WAITING = Gauge("medevac_chat_waiting", "Messages that don't say yet what is true (this process)")
PAGES = Counter("medevac_pages_total", "Pages sent to paging systems and resolved there", ["pager", "outcome"])
PAGES_UNSENT = Gauge("medevac_pages_unsent", "Pages that a paging system has not taken yet", ["pager"])
SLACK = Counter("medevac_slack_requests_total", "Requests of Slack by kind and outcome", ["kind", "outcome"])
UPDATES = Counter("medevac_updates_total", "People's orders to workflows by kind and outcome", ["order", "outcome"])

OPEN_INCIDENTS = Gauge("medevac_open_incidents", "Incidents that have not ended", ["state"])
OVERDUE_INCIDENTS = Gauge("medevac_overdue_incidents", "Incidents with no ledger line beyond their step's limit")
PENDING_APPROVALS = Gauge("medevac_pending_approvals", "Approvals that wait for a person")
OLDEST_APPROVAL_SECONDS = Gauge("medevac_oldest_pending_approval_seconds", "Age of the oldest pending approval")
FENCES = Gauge("medevac_fences", "Freezes that stand")
BREAKERS = Gauge("medevac_breakers_open", "1 for each open breaker", ["scope"])
SWEEPS = Counter("medevac_sweeps_total", "Sweeps by outcome", ["outcome"])
LAST_SWEEP = Gauge("medevac_last_sweep_timestamp_seconds", "When a sweep last ended well (this process)")
LEASES_REAPED = Counter("medevac_leases_reaped_total", "Leases taken back from workflows that no longer run")
UNPLACED = Gauge(
    "medevac_unplaced_machines", "Machines that no node is known as, with latched faults or notices lately", ["sender"]
)
QUIET = Gauge("medevac_quiet_monitors", "Senders and heartbeats that are expected to speak and don't", ["sender"])
ORPHANS_CLOSED = Counter("medevac_orphans_closed_total", "Incidents closed because their workflow was gone")
ORPHAN_MARKS = Gauge("medevac_orphan_marks", "Nodes that carry our mark though no open incident stands behind it")
ORPHAN_MARKS_LIFTED = Counter("medevac_orphan_marks_lifted_total", "Such marks lifted, as their incident's end says")

POLLERS = Gauge("medevac_worker_polling", "1 while this worker was seen polling the task queue lately", ["queue"])
BUILD = Gauge("medevac_build_info", "Constant 1", ["version", "build_id"])
