import { z } from "zod";
import { EventLevel, EventState, FlowRecord } from "../../protocol/documents/telemetry.ts";
import { Fqdn, JsonObject, LifecycleState, NodeState, NodeType, Tags, Uid } from "../../protocol/values/values.ts";
import { Policy, PolicyName, ServiceUserName } from "../access/policies/policy.ts";

const Text = z.string();
export const Seconds = z.int();

/** Returns the name of a section's component in the OpenAPI document. */
export const sectionComponent = (name: string): string =>
  `${name.replace(/^_?([a-z])/, (_, first: string) => first.toUpperCase())}Section`;

const SECTIONS = ["connectors", "services", "gateway", "network", "alert", "cluster", "snmp", "apigw"];
/** The configuration as it is shown; the document refers to the forms in which its sections are written. */
const Config = JsonObject.meta({
  id: "Config",
  description: "Sections of the configuration by name",
  properties: Object.fromEntries(
    SECTIONS.map((name) => [name, { $ref: `#/components/schemas/${sectionComponent(name)}` }]),
  ),
  examples: [{ gateway: { enabled: true, type: "public", host: "gw.example.net", port: 8443 } }],
});

/** Public form of a node; a projection omits fields that were not requested. */
export const PublicNode = z
  .object({
    uid: Uid,
    name: Text.optional(),
    fqdn: Fqdn.optional(),
    online: z.boolean().optional(),
    state: NodeState,
    type: NodeType,
    cluster: Fqdn.optional(),
    tags: Tags,
    inheritedTags: Tags.optional().meta({
      description: "Tags of its cluster; filters and conditions of policies use them, too, those of the node first",
    }),
    tgTags: Tags,
    keys: z.record(Text, z.union([Text, JsonObject])).meta({
      description: "Public keys by purpose: base64 text, or JWK if the controller is started with `--node-keys jwk`",
    }),
    tgrn: Text,
    lastip: Text.optional(),
    lock: z
      .object({
        addresses: z.array(Text).meta({ description: "Addresses and blocks from which it may connect" }),
        unauthorizedIp: Text.optional().meta({
          description: "Address outside them from which it connects; the node is INACTIVE",
        }),
      })
      .optional(),
    last_connect: z.int().meta({ description: "Unix milliseconds" }).optional(),
    created_at: Seconds.optional(),
    device: JsonObject.optional(),
    location: JsonObject.optional(),
    heartbeat: JsonObject.optional(),
    lifecycleState: LifecycleState.optional(),
    disconnectTime: Seconds.optional(),
    orderID: z.uuid().optional(),
    org: z.uuid().optional(),
    domain: Fqdn.optional(),
    config: Config.optional(),
    shadow: z.strictObject({ reported: JsonObject.optional(), desired: JsonObject.optional() }).optional(),
  })
  .meta({ id: "Node" });

/** A field that is not set, by any of the forms in which clients write it: absent, null or empty. */
export const Unset = z.literal("").nullish();

/** Part of a node shown to callers who may write but not read it. */
export const NodePart = PublicNode.partial()
  .required({ uid: true })
  .extend({ cluster: z.union([Fqdn, Unset]) })
  .meta({ id: "NodePart" });

const CLUSTER = {
  fqdn: "pair.example.net",
  name: "pair",
  domain: "example.net",
  tgrn: "tgrn:tg::nodes:cluster/pair.example.net",
  created_at: 1_760_000_000,
  tags: {},
  members: [],
  config: {},
};

export const PublicCluster = z
  .object({
    fqdn: Fqdn,
    name: Text,
    domain: Fqdn,
    tgrn: Text,
    created_at: Seconds,
    tags: Tags,
    members: z.array(Uid).meta({ description: "Identifiers of the members that the caller may read" }),
    config: Config,
  })
  .meta({ id: "Cluster", examples: [CLUSTER] });

/** Part of a cluster shown to callers who may write but not read it. */
export const ClusterPart = PublicCluster.partial().required({ fqdn: true }).meta({ id: "ClusterPart" });

const Origin = z
  .enum(["control-plane", "node"])
  .meta({ description: "Writer of the record; one by a node is only as trustworthy as the node" });

export const PublicEvent = z
  .object({
    uid: Text,
    eventType: Text,
    level: EventLevel,
    message: Text,
    timestamp: z.number(),
    receivedTime: z.number(),
    details: JsonObject,
    state: EventState,
    subject: z.enum(["Node", "Cluster", "Org", "Certificate", "Order", "Upgrade", "AlertSuppression"]),
    orgId: Text,
    nodeId: Text.optional().meta({ description: "Absent unless the event is about a node" }),
    nodeName: Text.optional(),
    domain: Text,
    fqdn: Text,
    origin: Origin,
  })
  .meta({ id: "Event" });

export const PublicAudit = z
  .object({
    uid: Text.meta({ description: "The node" }),
    fqdn: Text,
    category: Text.meta({ description: "For example `Node Action`" }),
    value: Text,
    timestamp: z.number().meta({ description: "Unix seconds" }),
    expires: z.number().meta({ description: "Time of deletion, Unix seconds" }),
    org: Text,
    origin: Origin,
  })
  .meta({ id: "Audit" });

export const PublicFlow = FlowRecord.omit({ usage: true })
  .extend({
    nodeId: Text.meta({ description: "The node that reported it" }),
    flags: FlowRecord.shape.flags.meta({
      description:
        "Bit mask as a decimal number: 65536 no ACL match, 131072 no rule match, 262144 no route, 524288 invalid TCP, 67108864 TLS certificate expired, 134217728 TLS name mismatch, 268435456 TLS self-signed, 536870912 TLS mutual authentication required",
    }),
  })
  .meta({ id: "Flow" });

export const PublicAlert = z
  .object({ uid: Text, eventType: Text, message: Text, nodeId: Text, nodeName: Text, timestamp: z.number() })
  .meta({ id: "Alert" });

export const LegacyAlert = z
  .object({ uid: Text, type: Text, alert_message: Text, node_id: Text, node: Text, timestamp: z.number() })
  .meta({ id: "LegacyAlert" });

/** A policy in a response; unlike in a request, it may gain fields. */
export const PublicPolicy = z.object(Policy.shape).meta({ id: "PublicPolicy" });

export const PublicServiceUser = z
  .object({
    name: ServiceUserName,
    status: z.enum(["active", "inactive"]),
    policies: z.array(PolicyName),
    policyIds: z.array(PolicyName).meta({ description: "The same as `policies`" }),
    orgId: Text.meta({ description: "The organization" }),
    created_at: Seconds,
    clientId: Text.optional(),
    tokenCreated: Seconds.optional(),
  })
  .meta({ id: "ServiceUser" });

export const UsageBucketShape = z
  .object({ bytes: z.int(), count: z.int(), t: z.int().meta({ description: "Start of the bucket, Unix seconds" }) })
  .meta({ id: "UsageBucket" });

export const Problem = z
  .object({
    error: Text.meta({ description: "The same as `message`" }),
    code: Text,
    message: Text,
    details: z.unknown().optional(),
  })
  .meta({ id: "Problem", description: "Why a request failed; `code` is stable" });

export const ViolationLines = z.array(Text).meta({
  id: "Violations",
  description: "One line per reason, prefixed with the JSON path of the field if there is one",
});

/** Empty success response. */
export const Empty = z.strictObject({});

/** Error responses of all authenticated operations. */
export const refusals = {
  401: { description: "Credentials are missing or invalid", schema: Problem },
  403: { description: "The caller lacks the named permission on the named resource", schema: Problem },
  429: {
    description: "Too many failed authentications from this address; `retry-after` is the number of seconds to wait",
    schema: Problem,
  },
} as const;
export const notFound = { 404: { description: "Not found", schema: Problem } } as const;
export const violations = {
  422: { description: "The request is refused: one line per reason", schema: ViolationLines },
} as const;
/** Error responses of operations with a JSON body. */
export const badBody = {
  413: { description: "The body is too large", schema: Problem },
  415: { description: "The body has an unsupported media type", schema: Problem },
} as const;
/** Error responses of operations that a node performs while the caller waits. */
export const ofNode = {
  499: { description: "Cancelled", schema: Problem },
  500: { description: "The node failed", schema: Problem },
  501: { description: "The node does not have the tool", schema: Problem },
  502: { description: "The tool failed, or the node disconnected", schema: Problem },
  503: {
    description: "The node is offline; or `overloaded`, with `Retry-After`: too many large replies are in progress",
    schema: Problem,
  },
  504: { description: "The deadline passed", schema: Problem },
  507: { description: "The node's journal cannot be written", schema: Problem },
} as const;
