const FIRST = `
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE key_documents (version INTEGER PRIMARY KEY, jws TEXT NOT NULL, cross_jws TEXT) STRICT;

CREATE TABLE licenses (
  jti TEXT PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL, issued_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  issued_by TEXT NOT NULL, consumed_at INTEGER
) STRICT;

CREATE TABLE clusters (
  fqdn TEXT PRIMARY KEY, name TEXT NOT NULL, domain TEXT NOT NULL, created_at INTEGER NOT NULL,
  tags TEXT NOT NULL DEFAULT '{}', config TEXT NOT NULL DEFAULT '{}'
) STRICT;

CREATE TABLE nodes (
  uid TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, fqdn TEXT NOT NULL UNIQUE, domain TEXT NOT NULL, org TEXT NOT NULL,
  type TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'ACTIVE', lifecycle_state TEXT,
  cluster TEXT REFERENCES clusters (fqdn),
  tags TEXT NOT NULL DEFAULT '{}', config TEXT NOT NULL DEFAULT '{}',
  keys TEXT NOT NULL, auth TEXT NOT NULL UNIQUE, overlay TEXT NOT NULL UNIQUE, wireguard TEXT NOT NULL UNIQUE,
  device TEXT, created_at INTEGER NOT NULL, speed_token TEXT NOT NULL UNIQUE,
  last_ip TEXT, last_connect INTEGER, disconnect_time INTEGER,
  heartbeat TEXT, reported TEXT NOT NULL DEFAULT '{}', reported_version INTEGER NOT NULL DEFAULT 0,
  trail TEXT NOT NULL
) STRICT;
CREATE INDEX nodes_by_cluster ON nodes (cluster);
CREATE TABLE tombstones (uid TEXT PRIMARY KEY, auth_key TEXT NOT NULL, auth TEXT NOT NULL, deleted_at INTEGER NOT NULL) STRICT;

CREATE TABLE documents (
  node TEXT NOT NULL REFERENCES nodes (uid) ON DELETE CASCADE, name TEXT NOT NULL, sub TEXT NOT NULL,
  version INTEGER NOT NULL, hash TEXT NOT NULL, body TEXT NOT NULL, jws TEXT, seal TEXT,
  PRIMARY KEY (node, name, sub)
) STRICT;
CREATE TABLE applied (
  node TEXT NOT NULL REFERENCES nodes (uid) ON DELETE CASCADE, name TEXT NOT NULL, report TEXT NOT NULL,
  PRIMARY KEY (node, name)
) STRICT;

CREATE TABLE events (
  seq INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, node_id TEXT NOT NULL, node_name TEXT NOT NULL, fqdn TEXT NOT NULL,
  domain TEXT NOT NULL, org TEXT NOT NULL, event_type TEXT NOT NULL, level TEXT NOT NULL, message TEXT NOT NULL,
  state TEXT NOT NULL, subject TEXT NOT NULL, timestamp REAL NOT NULL, received_time REAL NOT NULL, details TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_node ON events (node_id, timestamp);
CREATE INDEX events_by_time ON events (timestamp);
CREATE INDEX events_by_receipt ON events (received_time);
CREATE TABLE alerts (
  node_id TEXT NOT NULL, event_type TEXT NOT NULL, uid TEXT NOT NULL, node_name TEXT NOT NULL, message TEXT NOT NULL,
  timestamp REAL NOT NULL, PRIMARY KEY (node_id, event_type)
) STRICT;
CREATE TABLE audits (
  seq INTEGER PRIMARY KEY, node_id TEXT NOT NULL, fqdn TEXT NOT NULL, category TEXT NOT NULL, value TEXT NOT NULL,
  timestamp REAL NOT NULL
) STRICT;
CREATE INDEX audits_by_node ON audits (node_id, timestamp);
CREATE INDEX audits_by_time ON audits (timestamp);

CREATE TABLE triggers (
  id TEXT PRIMARY KEY, node TEXT NOT NULL REFERENCES nodes (uid) ON DELETE CASCADE, event TEXT NOT NULL, user TEXT NOT NULL,
  sent_at INTEGER NOT NULL, outcome TEXT
) STRICT;
CREATE INDEX triggers_by_node ON triggers (node);
CREATE INDEX triggers_by_time ON triggers (sent_at);

CREATE TABLE telemetry_acks (
  node TEXT NOT NULL REFERENCES nodes (uid) ON DELETE CASCADE, stream TEXT NOT NULL, last INTEGER NOT NULL,
  PRIMARY KEY (node, stream)
) STRICT;
CREATE TABLE metrics (
  node TEXT NOT NULL REFERENCES nodes (uid) ON DELETE CASCADE, t INTEGER NOT NULL, m TEXT NOT NULL, PRIMARY KEY (node, t)
) STRICT, WITHOUT ROWID;
CREATE INDEX metrics_by_time ON metrics (t);
CREATE TABLE gateway_details (
  seq INTEGER PRIMARY KEY, node TEXT NOT NULL REFERENCES nodes (uid) ON DELETE CASCADE, received_at INTEGER NOT NULL,
  record TEXT NOT NULL
) STRICT;
CREATE INDEX gateway_details_by_node ON gateway_details (node, received_at);
CREATE INDEX gateway_details_by_time ON gateway_details (received_at);
`;

/** Stores which nodes are online, so that none is missed after the controller stops. */
const ONLINE = `
ALTER TABLE nodes ADD COLUMN is_online INTEGER NOT NULL DEFAULT 0;
UPDATE nodes SET is_online = 1 WHERE last_connect / 1000 > coalesce(disconnect_time, -1);
`;

/** Removes stored tokens, which are derived from a key instead, and documents that contain them. */
const NO_SPEED_TOKENS = `
UPDATE nodes SET speed_token = uid;
UPDATE documents SET jws = NULL, seal = NULL WHERE name = 'node';
`;

/** Requested confirmation of a node's latest change. */
const CONFIRM = "ALTER TABLE nodes ADD COLUMN confirm TEXT;";

/** Permitted address blocks of a node as JSON, and the source address outside them. */
const IP_LOCK = "ALTER TABLE nodes ADD COLUMN locked_to TEXT; ALTER TABLE nodes ADD COLUMN unauthorized_ip TEXT;";

/** Tables of `AccessStore`. */
const accessMigration: string = `
  CREATE TABLE api_key (
    name TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    policies TEXT NOT NULL
  ) STRICT;
  CREATE TABLE policy (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
  ) STRICT;
  CREATE TABLE service_user (
    name TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    client_id TEXT UNIQUE,
    secret_sha256 TEXT
  ) STRICT;
  CREATE TABLE service_user_policy (
    service_user TEXT NOT NULL REFERENCES service_user (name) ON DELETE CASCADE,
    policy TEXT NOT NULL REFERENCES policy (name) ON DELETE RESTRICT,
    PRIMARY KEY (service_user, policy)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX service_user_policy_by_policy ON service_user_policy (policy);
`;

const agentTokensMigration = `
CREATE TABLE agent_tokens (
  id TEXT PRIMARY KEY, secret_sha256 TEXT NOT NULL, name TEXT, name_prefix TEXT, max_uses INTEGER NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, created_by TEXT NOT NULL
) STRICT;
CREATE TABLE agent_token_uses (
  token TEXT NOT NULL REFERENCES agent_tokens (id) ON DELETE CASCADE, key TEXT NOT NULL, name TEXT NOT NULL, license TEXT,
  PRIMARY KEY (token, key)
) STRICT, WITHOUT ROWID;
`;

const awaitedMigration = `
CREATE TABLE awaited (
  node TEXT PRIMARY KEY REFERENCES nodes (uid) ON DELETE CASCADE, reason TEXT NOT NULL, since INTEGER NOT NULL,
  deadline INTEGER NOT NULL, is_reported INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX awaited_by_deadline ON awaited (is_reported, deadline);
`;

const containerOutputMigration = `
CREATE TABLE container_output (
  seq INTEGER PRIMARY KEY, node TEXT NOT NULL, container TEXT NOT NULL, name TEXT NOT NULL, run TEXT NOT NULL, stream TEXT NOT NULL,
  at INTEGER NOT NULL, text TEXT NOT NULL, chars INTEGER NOT NULL
) STRICT;
CREATE INDEX container_output_by_node ON container_output (node, at);
CREATE INDEX container_output_by_time ON container_output (at);
`;

const originMigration = `
${["events", "audits"].map((table) => `ALTER TABLE ${table} ADD COLUMN origin TEXT NOT NULL DEFAULT 'node';`).join("\n")}
UPDATE events SET origin = 'control-plane' WHERE event_type IN (
  'Configuration Change', 'Connection Flapping', 'Control Plane Restored', 'Identity Shared', 'License Reused', 'Message Too Large',
  'Node Connect', 'Node Delete', 'Node Disconnect', 'Node Signature Refused');
UPDATE audits SET origin = 'control-plane' WHERE category = 'Node Action';
CREATE INDEX events_by_origin ON events (origin, node_id);
CREATE INDEX audits_by_origin ON audits (origin, node_id);
`;

const flowsMigration = `
CREATE TABLE flows (
  seq INTEGER PRIMARY KEY, node TEXT NOT NULL, source_node TEXT NOT NULL, dest_node TEXT NOT NULL,
  source_ip TEXT NOT NULL, dest_ip TEXT NOT NULL, source_key BLOB, dest_key BLOB,
  source_port INTEGER NOT NULL, dest_port INTEGER NOT NULL, source_bytes INTEGER NOT NULL, dest_bytes INTEGER NOT NULL,
  started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL, protocol TEXT NOT NULL, tcp_flags TEXT, flags INTEGER NOT NULL,
  activity TEXT, meta TEXT
) STRICT;
CREATE INDEX flows_by_node ON flows (node, ended_at);
CREATE INDEX flows_by_time ON flows (ended_at);
CREATE TABLE flow_usage (
  node TEXT NOT NULL, t INTEGER NOT NULL, bytes INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (node, t)
) STRICT, WITHOUT ROWID;
CREATE INDEX flow_usage_by_time ON flow_usage (t);
`;

/** Adds the source, so that a flow reported by both ends counts once. Earlier counts stay unchanged. */
const flowSourcesMigration = `
ALTER TABLE flow_usage RENAME TO old_flow_usage;
DROP INDEX flow_usage_by_time;
CREATE TABLE flow_usage (
  node TEXT NOT NULL, t INTEGER NOT NULL, source TEXT NOT NULL, bytes INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (node, t, source)
) STRICT, WITHOUT ROWID;
INSERT INTO flow_usage SELECT node, t, '', bytes, count FROM old_flow_usage;
DROP TABLE old_flow_usage;
CREATE INDEX flow_usage_by_time ON flow_usage (t);
`;

const gatewayDetailsMigration = `
DROP TABLE gateway_details;
CREATE TABLE gateway_details (
  node TEXT NOT NULL, name TEXT NOT NULL, peer TEXT NOT NULL, peer_uid TEXT NOT NULL, path TEXT NOT NULL, t INTEGER NOT NULL,
  num_rtt INTEGER NOT NULL, min_rtt REAL NOT NULL, max_rtt REAL NOT NULL, mean_rtt REAL NOT NULL, std_rtt REAL NOT NULL, hops TEXT,
  PRIMARY KEY (node, t, peer, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX gateway_details_by_peer ON gateway_details (peer_uid, t);
CREATE INDEX gateway_details_by_time ON gateway_details (t);
`;

const imagesMigration = `
CREATE TABLE images (
  node TEXT NOT NULL REFERENCES nodes (uid) ON DELETE CASCADE, id TEXT NOT NULL, display_name TEXT NOT NULL, description TEXT,
  location TEXT NOT NULL, os TEXT NOT NULL,
  PRIMARY KEY (node, id)
) STRICT, WITHOUT ROWID;
`;

/** Schema, one script per version. A released script is never edited. */
export const migrations: readonly string[] = [
  FIRST,
  accessMigration,
  ONLINE,
  NO_SPEED_TOKENS,
  flowsMigration,
  gatewayDetailsMigration,
  flowSourcesMigration,
  CONFIRM,
  containerOutputMigration,
  imagesMigration,
  originMigration,
  IP_LOCK,
  awaitedMigration,
  agentTokensMigration,
];
