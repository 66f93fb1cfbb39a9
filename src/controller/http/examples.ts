import { isObject } from "../../protocol/sections/common/forms.ts";

type Json = Readonly<Record<string, unknown>>;

const NODE = "7d8f0c5e-2b4a-4f0e-9a51-3c1d2e4f5a6b";
const ORG = "0f0e0d0c-0b0a-4908-8706-050403020100";
const ITEM = "2f6d1c3b-8e7a-4d5c-9b0a-1e2f3a4b5c6d";
const PEM = "-----BEGIN CERTIFICATE-----\nMIIBdTCCARqgAwIBAgIU\n-----END CERTIFICATE-----\n";
const RELEASE = "0.1.20261121-1830";
const SECONDS = 1_760_000_000;
const THUMBPRINT = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";
const PUBLIC_KEY = "NzbLsXh8uDCcd+6MNwXF4W/7noWXFZAfHkxZsRGC9Xs=";

/**
 * Values of fields whose schema has no example, by name; used if the type fits. Identifiers are the same everywhere, so that examples fit
 * together. A field whose meaning depends on its place has an example in its schema: `.meta({ examples: [value] })`.
 */
const FIELDS: Readonly<Record<string, unknown>> = {
  access_token: "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJkZXBsb3kifQ.c2lnbmF0dXJl",
  actions: ["nodes::read"],
  activityID: "01J9ZK7Q4M2V8X6B3N5C7D9E1F",
  address: "192.0.2.7",
  addresses: ["192.0.2.0/24"],
  alert_message: "Node disconnected",
  alertType: "Node Disconnect",
  at: SECONDS,
  bucketDest: "s3://backups/dump.tar",
  build: "0.1.20261121-1830",
  category: "Node Action",
  certificateBody: PEM,
  certificateChain: PEM,
  chain: PEM,
  client_id: "9b2f4c8e-6d1a-4e3b-8f7c-5a0d9e1b2c3d",
  client_secret: "c2VjcmV0LW9mLXRoZS1leGFtcGxlLW5vdC1hLXJlYWw",
  clientId: "9b2f4c8e-6d1a-4e3b-8f7c-5a0d9e1b2c3d",
  clientSecret: "c2VjcmV0LW9mLXRoZS1leGFtcGxlLW5vdC1hLXJlYWw",
  cluster: "pair.example.net",
  clusterFQDN: "pair.example.net",
  code: "K7RM4Q",
  command: "nginx -g 'daemon off;'",
  component: "network",
  config: { gateway: { enabled: true, host: "gw.example.net", port: 8443 } },
  connectorID: ITEM,
  container: "web",
  containerID: ITEM,
  created_at: SECONDS,
  created_by: "admin",
  description: "Example",
  dest: "edge-2",
  destIP: "198.51.100.7",
  destNode: "edge-2",
  detail: "the default route leaves by ens3",
  device: { vendor: "kvm", model: "kvm", mac: "52:54:00:00:00:01" },
  digest: `sha256:${"0".repeat(64)}`,
  disconnectTime: SECONDS,
  domain: "example.net",
  email: "operator@example.net",
  emergencyDestination: "operator@example.net",
  endDate: SECONDS,
  endpoint: "https://cp.example.net:8480",
  endTime: "2026-01-01T00:01:00.000Z",
  error: "there is no image example/web:1.27",
  event: "tg-ping",
  eventType: "Node Connect",
  evidence: "ip route show default",
  exitCode: "0",
  expires: SECONDS + 86_400,
  expiresAt: SECONDS + 900,
  filename: "reports",
  filePath: "reports/today.csv",
  fix: "set gateway of ens3",
  flags: "0",
  fqdn: "edge-1.example.net",
  from: RELEASE,
  gateway: "edge-2",
  gateway_node: "edge-2",
  gwPath: "backup",
  hash: "d41d8cd98f00b204e9800998ecf8427e",
  health: "healthy",
  heartbeat: { seq: 4, at: 1_760_000_000_999, uptimeSeconds: 60, load: 0.5 },
  host: "192.0.2.10",
  hostname: "192.0.2.10",
  id: ITEM,
  idp_provider: "holdfast",
  iface: "ens3",
  imageId: `sha256:${"0".repeat(64)}`,
  imageName: "example/web:1.27",
  insideCIDR: "10.1.0.0/24",
  interfaceName: "ens3",
  ip: "192.0.2.7",
  issued_at: "2026-01-01T00:00:00.000Z",
  item: "ens3",
  itemId: NODE,
  itemType: "node",
  jkt: THUMBPRINT,
  key: THUMBPRINT,
  keyName: "laptop",
  keys: { auth: PUBLIC_KEY, wireguard: PUBLIC_KEY },
  kid: "laptop",
  kind: "network",
  last_connect: SECONDS * 1000 + 123,
  lastip: "192.0.2.7",
  location: { country: "DE", city: "Berlin" },
  lock: { addresses: ["192.0.2.0/24"] },
  mac: "52:54:00:00:00:01",
  members: [NODE],
  message: "Node connected from IP address 192.0.2.7",
  mtu: 1500,
  name: "edge-1",
  namePrefix: "edge",
  network: "office",
  networkGroup: "office",
  networkName: "office",
  nic: "ens3",
  node: "edge-1",
  node_id: NODE,
  nodeID: NODE,
  nodeId: NODE,
  nodeName: "edge-1",
  nodeUid: NODE,
  orderID: "5e4d3c2b-1a09-4f8e-9d7c-6b5a49382716",
  org: ORG,
  orgId: ORG,
  outcome: "ok",
  outsideCIDR: "192.0.2.0/24",
  path: "reports/today.csv",
  peer: "files.example.net",
  phone: "+49 30 0000000",
  policies: ["operators"],
  port: 8443,
  private_key: PEM,
  privateKey: PEM,
  reason: "not reachable",
  receivedTime: SECONDS + 1,
  remoteAddress: "203.0.113.5:443",
  reponame: "shop",
  repository: "example/web",
  resources: ["*"],
  run: "1",
  runDir: "/run/holdfast",
  scope: "repository:shop/web:pull",
  secret: "c2VjcmV0LW9mLXRoZS1leGFtcGxlLW5vdC1hLXJlYWw",
  section: "network",
  sentAt: SECONDS,
  service: "web",
  serviceID: ITEM,
  session: "wss://cp.example.net:8480/agent/v1/session",
  sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
  shadow: { reported: { "node-core.version": "1.2.3", memory: 2048 }, desired: {} },
  sid: ITEM,
  size: "4 KB",
  source: "192.0.2.7",
  sourceIP: "192.0.2.7",
  sourceNode: "edge-1",
  startDate: SECONDS,
  startedAt: SECONDS,
  startTime: "2026-01-01T00:00:00.000Z",
  state: "ACTIVE",
  stateDir: "/var/lib/holdfast",
  subdomain: "example",
  subject: "ens3",
  summary: "1 change",
  t: SECONDS,
  tag: "1.27",
  tagName: "site",
  tags: { site: "berlin" },
  taskID: ITEM,
  tcpFlags: "2",
  tgrn: `tgrn:tg::nodes:node/${NODE}`,
  tgTags: { type: "appliance" },
  time: SECONDS * 1000,
  timestamp: SECONDS,
  to: RELEASE,
  token: "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJkZXBsb3kifQ.c2lnbmF0dXJl",
  trackerID: "1",
  triggerID: ITEM,
  uid: NODE,
  unauthorizedIp: "203.0.113.9",
  uri: "https://files.example.net/backup.tar",
  url: "https://cp.example.net:8480",
  user: "admin",
  userId: "admin",
  userName: "admin",
  value: "berlin",
  values: ["berlin"],
  vendor: "kvm",
  version: RELEASE,
  volumeName: "data",
  x: PUBLIC_KEY,
};

const TEXT = "text";

/**
 * Returns an example of a JSON Schema: the one that it gives, or one made of its parts with all known members. A component within itself is
 * omitted. Pure.
 */
export function exampleOf(schema: Json, components: Json, field = "", within: readonly string[] = []): unknown {
  const { $ref, examples, type } = schema;
  const below = (inner: unknown, name = field, above = within): unknown =>
    isObject(inner) ? exampleOf(inner, components, name, above) : undefined;
  if (Array.isArray(examples)) return examples[0];
  if (typeof $ref === "string") {
    const name = $ref.replace("#/components/schemas/", "");
    return within.includes(name) ? undefined : below(components[name], field, [...within, name]);
  }
  if ("const" in schema) return schema["const"];
  if (Array.isArray(schema["enum"])) return schema["enum"][0];
  const alternatives = schema["anyOf"] ?? schema["oneOf"];
  if (Array.isArray(alternatives)) return below(alternatives.find((one) => isObject(one) && one["type"] !== "null"));
  const known = Object.hasOwn(FIELDS, field) ? FIELDS[field] : undefined;
  if (known !== undefined && typeOf(known) === (type === "integer" ? "number" : type)) return known;
  if (type === "array") return listOf(below(schema["items"]));
  if (type === "object") return objectOf(schema, below);
  if (type === "string") return schema["default"] ?? TEXT;
  if (type === "boolean") return true;
  return type === "integer" || type === "number" ? numberOf(schema) : undefined;
}

/** Returns the name of a value's type in JSON Schema. */
const typeOf = (value: unknown): string => (Array.isArray(value) ? "array" : typeof value);

const listOf = (item: unknown): unknown[] => (item === undefined ? [] : [item]);

function objectOf(schema: Json, below: (inner: unknown, name: string) => unknown): Json {
  const { properties, additionalProperties, propertyNames } = schema;
  const members = Object.entries(isObject(properties) ? properties : {}).map(([name, inner]): [string, unknown] => [
    name,
    below(inner, name),
  ]);
  const isMap = members.length === 0 && isObject(additionalProperties) && Object.keys(additionalProperties).length > 0;
  const key = below(propertyNames, "name");
  if (isMap) members.push([typeof key === "string" ? key : "name", below(additionalProperties, "value")]);
  return Object.fromEntries(members.filter(([, value]) => value !== undefined));
}

function numberOf({ minimum, default: usual }: Json): number {
  if (typeof usual === "number") return usual;
  return typeof minimum === "number" && minimum > 1 ? minimum : 1;
}
