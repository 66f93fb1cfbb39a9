import { z } from "zod";
import { EventLevel, EventState, FlowRecord } from "../../protocol/documents/telemetry.ts";
import { Fqdn, JsonObject, LifecycleState, NodeState, NodeType, Tags, Uid } from "../../protocol/values/values.ts";
import { Policy, PolicyName, ServiceUserName } from "../model/policy.ts";

const Text = z.string();
export const Seconds = z.int();

/** A node as the API shows it; a projection leaves out what was not asked for. */
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
    tgTags: Tags,
    keys: z.record(Text, JsonObject).meta({ description: "Public keys as JWK by purpose" }),
    tgrn: Text,
    lastip: Text.optional(),
    lock: z
      .object({
        addresses: z.array(Text).meta({ description: "Addresses and blocks that it may connect from" }),
        unauthorizedIp: Text.optional().meta({ description: "Another that it connects from, and is held INACTIVE" }),
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
    config: JsonObject.optional(),
    shadow: z.strictObject({ reported: JsonObject.optional(), desired: JsonObject.optional() }).optional(),
  })
  .meta({ id: "Node" });

/** What of a node is told to who may write it but not read it. */
export const NodePart = PublicNode.partial()
  .required({ uid: true })
  .extend({ cluster: Fqdn.nullable().optional() })
  .meta({ id: "NodePart" });

export const PublicCluster = z
  .object({
    fqdn: Fqdn,
    name: Text,
    domain: Fqdn,
    tgrn: Text,
    created_at: Seconds,
    tags: Tags,
    members: z.array(Uid).meta({ description: "Node identifiers" }),
    config: JsonObject,
  })
  .meta({ id: "Cluster" });

/** What of a cluster is told to who may write it but not read it. */
export const ClusterPart = PublicCluster.partial().required({ fqdn: true }).meta({ id: "ClusterPart" });

const Origin = z
  .enum(["control-plane", "node"])
  .meta({ description: "Who wrote it: what a node writes about itself is as good as the node" });

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
    subject: z.enum(["Node", "Certificate", "Order", "Upgrade", "AlertSuppression"]),
    orgId: Text,
    nodeId: Text,
    nodeName: Text,
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
    expires: z.number().meta({ description: "When it is forgotten, Unix seconds" }),
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

/** A policy as it is answered; unlike one that is sent it may gain fields. */
export const PublicPolicy = z.object(Policy.shape).meta({ id: "PublicPolicy" });

export const PublicServiceUser = z
  .object({
    name: ServiceUserName,
    policies: z.array(PolicyName),
    created_at: Seconds,
    clientId: Text.optional(),
  })
  .meta({ id: "ServiceUser" });

export const UsageBucketShape = z
  .object({ bytes: z.int(), count: z.int(), t: z.int().meta({ description: "Start of the bucket, Unix seconds" }) })
  .meta({ id: "UsageBucket" });

export const Problem = z
  .object({ error: Text, code: Text, details: z.unknown().optional() })
  .meta({ id: "Problem", description: "Why a request was refused; `code` is stable" });

export const ViolationLines = z
  .array(Text)
  .meta({ id: "Violations", description: "One line per wrong field, led by its path" });

/** Nothing to say but success. */
export const Empty = z.strictObject({});

/** What every operation below `/node` and its siblings may answer besides success. */
export const refusals = {
  401: { description: "No credentials, or they do not hold", schema: Problem },
  403: { description: "The named permission is missing on the named resource", schema: Problem },
  429: {
    description: "Too many failed authentications from this address; `retry-after` says how many seconds to wait",
    schema: Problem,
  },
} as const;
export const notFound = { 404: { description: "There is no such thing", schema: Problem } } as const;
export const violations = {
  422: { description: "The request breaks a rule", schema: z.union([ViolationLines, Problem]) },
} as const;
/** Of every operation that takes a JSON body. */
export const badBody = {
  ...violations,
  400: { description: "The body is not JSON", schema: Problem },
  413: { description: "The body is too large", schema: Problem },
  415: { description: "The body has another type", schema: Problem },
} as const;
/** Of every operation that a node carries out while the caller waits. */
export const ofNode = {
  409: { description: "The node is busy or INACTIVE, or something is in the way", schema: Problem },
  499: { description: "Taken back", schema: Problem },
  500: { description: "The node failed", schema: Problem },
  501: { description: "The node lacks the tool", schema: Problem },
  502: { description: "The tool failed, or the node was cut off", schema: Problem },
  503: {
    description: "The node is offline; or `overloaded`, with `Retry-After`: too many large answers are under way",
    schema: Problem,
  },
  504: { description: "The deadline passed", schema: Problem },
  507: { description: "The node's journal cannot be written", schema: Problem },
} as const;
