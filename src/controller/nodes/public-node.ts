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

const FIELDS = {
  uid: ({ uid }) => uid,
  name: ({ name }) => name,
  fqdn: ({ fqdn }) => fqdn,
  online: ({ isOnline }) => isOnline,
  state: ({ state }) => state,
  type: ({ type }) => type,
  cluster: ({ cluster }) => cluster,
  tags: ({ tags }) => tags,
  inheritedTags: (node) => node.inheritedTags,
  tgTags: systemTags,
  keys: ({ keys, clientKeys, keyForm = "text" }) => shownKeys(keys, clientKeys, keyForm),
  tgrn: ({ uid }) => tgrn.node(uid),
  lastip: ({ lastIp }) => lastIp,
  lock: lockOf,
  last_connect: ({ lastConnect }) => lastConnect,
  created_at: ({ createdAt }) => createdAt,
  device: ({ device }) => device,
  location: ({ location }) => location ?? {},
  heartbeat: heartbeatOf,
  lifecycleState: ({ lifecycleState }) => lifecycleState,
  disconnectTime: ({ disconnectTime }) => disconnectTime,
  orderID: ({ orderID }) => orderID,
  config: ({ config }) => hideSecrets(config),
  shadow: ({ reported, desired }) => ({ reported, desired }),
} as const satisfies Readonly<Record<string, (record: ListedNode) => unknown>>;

export type FieldName = keyof typeof FIELDS;

/** Returns a field of the public form of a node, with empty secrets; undefined if it is unknown. */
export function publicField(record: ListedNode, name: FieldName): unknown {
  return FIELDS[name](record);
}

/** Reports whether nodes have a field of this name. */
export const isField = (name: string): name is FieldName => Object.hasOwn(FIELDS, name);

/** Builds the public form of a node; unknown fields are omitted and secrets are empty. */
export function publicNode(record: ListedNode, view: View): PublicNode {
  const { uid } = record;
  const node: Record<string, unknown> & { uid: string } = { uid };
  for (const [name, read] of Object.entries(FIELDS)) {
    const value = view === "list" && (name === "config" || name === "shadow") ? {} : read(record);
    if (value !== undefined) node[name] = value;
  }
  if (view === "detail") Object.assign(node, { org: record.org, domain: record.domain });
  return node;
}

/** Returns the tags that the controller assigns: the type, and what the machine reports of itself. */
function systemTags({ type, device, reported }: ListedNode): Record<string, string> {
  const tags: Record<string, string> = {};
  const add = (name: string, value: unknown): void => {
    if (typeof value === "string" && value !== "") tags[name] = tagOf(value);
  };
  add("type", type);
  add("vendor", device?.vendor);
  add("model", device?.model);
  add("os", reported["os.distro.id"]);
  add("arch", reported["os.arch"]);
  return tags;
}

const PLAIN_TAG = /^[A-Za-z0-9_-]{1,128}$/;

/** Returns a text as the value of a tag; nearly all are one already. */
const tagOf = (text: string): string =>
  PLAIN_TAG.test(text) ? text : text.slice(0, MAX_TAG).replaceAll(/[^A-Za-z0-9_-]+/g, "-");

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
