import type { NodeKeys } from "../../protocol/values/keys.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { hideSecrets } from "../../protocol/documents/secrets.ts";
import { defined } from "../../lib/defined.ts";
import type { ListedNode } from "./records.ts";

/** A node in the form of `GET /node`: `last_connect` in milliseconds, the other times in seconds. */
export type PublicNode = Readonly<Record<string, unknown>> & { readonly uid: string };

/** Level of detail: `list` empties `config` and `shadow`; `detail` adds the organization and the domain. */
export type View = "list" | "full" | "detail";

/** Builds the public form of a node; unknown fields are omitted and secrets are empty. */
export function publicNode(record: ListedNode, view: View): PublicNode {
  const { uid } = record;
  const node: Record<string, unknown> & { uid: string } = {
    uid,
    name: record.name,
    fqdn: record.fqdn,
    online: record.isOnline,
    state: record.state,
    type: record.type,
    cluster: record.cluster,
    tags: record.tags,
    tgTags: {},
    keys: publicKeys(record.keys),
    tgrn: tgrn.node(uid),
    lastip: record.lastIp,
    lock: lockOf(record),
    last_connect: record.lastConnect,
    created_at: record.createdAt,
    device: record.device,
    location: {},
    heartbeat: heartbeatOf(record),
    lifecycleState: record.lifecycleState,
    disconnectTime: record.disconnectTime,
    orderID: record.orderID,
    config: view === "list" ? {} : hideSecrets(record.config),
    shadow: view === "list" ? {} : { reported: record.reported, desired: record.desired },
  };
  if (view === "detail") Object.assign(node, { org: record.org, domain: record.domain });
  for (const [key, value] of Object.entries(node)) if (value === undefined) delete node[key];
  return node;
}

function lockOf({ lockedTo, unauthorizedIp }: ListedNode): Record<string, unknown> | undefined {
  if (lockedTo === undefined) return undefined;
  return { addresses: lockedTo, ...defined({ unauthorizedIp }) };
}

function heartbeatOf(record: ListedNode): Record<string, unknown> | undefined {
  if (record.heartbeat === undefined) return undefined;
  return {
    ...record.heartbeat,
    nodeId: record.uid,
    orgId: record.org,
    gatekeeper: `tgrn:tg::controller:gatekeeper/${record.domain}`,
    timestamp: Math.floor(record.heartbeat.at / 1000),
    source: "control-channel",
  };
}

/** Returns the public keys; WireGuard keys as `EC`/`X25519` with padded base64, as `wg` prints them. */
function publicKeys(keys: NodeKeys): Record<string, unknown> {
  const wireguard = Buffer.from(keys.wireguard.x, "base64url").toString("base64");
  return { identity: keys.auth, overlay: keys.overlay, wireguard: { kty: "EC", crv: "X25519", x: wireguard } };
}
