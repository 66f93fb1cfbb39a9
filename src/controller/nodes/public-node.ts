import { tgrn } from "../access/policies/permissions.ts";
import { hideSecrets } from "../../protocol/documents/secrets.ts";
import { defined } from "../../lib/defined.ts";
import { shownKeys } from "./client-keys.ts";
import type { ListedNode } from "./records.ts";

/** A node in the form of `GET /node`: `last_connect` in milliseconds, the other times in seconds. */
export type PublicNode = Readonly<Record<string, unknown>> & { readonly uid: string };

/** Level of detail: `list` empties `config` and `shadow`; `detail` adds the organization and the domain. */
export type View = "list" | "full" | "detail";

const MAX_TAG = 128;

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
    tgTags: systemTags(record),
    keys: shownKeys(record.keys, record.clientKeys ?? {}, record.keyForm ?? "text"),
    tgrn: tgrn.node(uid),
    lastip: record.lastIp,
    lock: lockOf(record),
    last_connect: record.lastConnect,
    created_at: record.createdAt,
    device: record.device,
    location: record.location ?? {},
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

/** Returns the tags that the controller assigns: the type, and what the machine reports of itself. */
function systemTags({ type, device, reported }: ListedNode): Record<string, string> {
  const { "os.distro.id": os, "os.arch": arch } = reported;
  const known = Object.entries({ type, vendor: device?.vendor, model: device?.model, os, arch });
  return Object.fromEntries(
    known.flatMap(([name, value]): [string, string][] => {
      const tag = typeof value === "string" ? value.slice(0, MAX_TAG).replaceAll(/[^A-Za-z0-9_-]+/g, "-") : "";
      return tag === "" ? [] : [[name, tag]];
    }),
  );
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
