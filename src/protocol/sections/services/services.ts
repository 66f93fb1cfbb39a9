import { z } from "zod";
import { Requires } from "../../values/features.ts";
import { LinkName, type JsonObject } from "../../values/values.ts";
import {
  decimal,
  DEFAULT_IDLE_TIMEOUT_MS,
  Description,
  Enabled,
  IdleTimeout,
  Index,
  isIpv4OrName,
  ItemPort,
  L4Protocol,
  says,
  transportOf,
  whole,
} from "../common/fields.ts";
import { configIssue, type ConfigCode, type ConfigIssue } from "../common/issue.ts";
import { isObject, type RawItem } from "../common/forms.ts";
import { judgeFields, normaliseItems, tidyFields, type Normalised, type Reading } from "../common/items.ts";
import { GivenId, ItemId, sectionSchema } from "../common/section.ts";
import { defined } from "../../../lib/defined.ts";

/** Seconds. */
const DEFAULT_CONNECT_TIMEOUT = 5;
const DEFAULT_HEALTH_CHECK = { interval: 10, failures: 3, successes: 1 };

/** Health probe of the target: seconds between probes, and consecutive results that change its health. */
const HealthCheck = z.looseObject(
  {
    interval: decimal(1, 3600).optional(),
    failures: whole(1, 100).optional(),
    successes: whole(1, 100).optional(),
  },
  says("must be an object"),
);

const shape = {
  enabled: Enabled,
  name: z
    .string(says("must be text"))
    .regex(/^[A-Za-z0-9-]{1,253}$/, says("must be letters, digits and dashes"))
    .meta({ description: "What connectors call it" }),
  protocol: L4Protocol,
  host: z
    .string(says("must be text"))
    .min(1, { error: "must not be empty", abort: true })
    .max(253, { error: "must have at most 253 characters", abort: true })
    .refine(isIpv4OrName, says("must be an IPv4 address or a DNS name"))
    .meta({ description: "IPv4 address or DNS name" }),
  port: ItemPort,
  sourceInterface: LinkName.optional(),
  sourceFromClusterIP: z.boolean(says("must be true or false")).optional(),
  connectTimeout: decimal(1, 600).optional().meta({ description: "Seconds; 5 by default" }),
  idleTimeout: IdleTimeout,
  healthCheck: HealthCheck.optional().meta({ description: "A target that fails it is withdrawn" }),
  description: Description,
  index: Index,
  requires: Requires,
};

/** A service as the API takes it; unknown fields are kept. */
export const ServiceItem = checked(z.looseObject({ ...shape, id: GivenId }, says("must be an object")));
/** A service as the V2 calls of the API answer it. */
export const StoredService = checked(z.looseObject({ ...shape, id: ItemId }, says("must be an object")));

/** The section `services` of the configuration, in either form. */
export const ServicesSection = sectionSchema("services", ServiceItem, (section) =>
  normaliseServices(section).rejected.filter(({ other }) => other !== undefined),
);

/** Probes of a target: the time between two, and how many in a row change what is thought of it. */
export interface HealthChecking {
  readonly intervalMs: number;
  readonly failures: number;
  readonly successes: number;
}

/** A dial target as a node uses it: everything filled in. Times in milliseconds. */
export interface Service {
  readonly id: string;
  /** JSON path of the item; prefix of its issues. */
  readonly path: string;
  readonly index: number;
  /** False when the item or the whole section is switched off. */
  readonly enabled: boolean;
  readonly name: string;
  readonly protocol: L4Protocol;
  readonly transport: "tcp" | "udp";
  readonly host: string;
  readonly port: number;
  readonly sourceInterface?: string;
  readonly sourceFromClusterIP: boolean;
  readonly connectTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Absent means that its health is not judged. */
  readonly healthCheck?: HealthChecking;
  readonly description: string;
}

export interface ServiceContext {
  /** Whether the node is a member of a cluster. */
  readonly isMember: boolean;
}

/** Normalizes the section by item: unusable ones are rejected, and the later of two with one name. */
export function normaliseServices(
  raw: unknown,
  { isMember }: ServiceContext = { isMember: false },
): Normalised<Service> {
  const byName = new Map<string, string>();
  return normaliseItems(
    "services",
    raw,
    (item, isOn) => readService(item, isOn, isMember),
    ({ id, name, path }) => {
      const first = byName.get(name);
      if (first === undefined) byName.set(name, id);
      if (first === undefined) return undefined;
      const issue = configIssue("E_NAME_DUPLICATE", { id, path }, "name", `${name} is the service ${first}`);
      return { ...issue, other: first };
    },
  );
}

const KNOWN = Object.keys(shape);
const NUMERIC: ReadonlySet<string> = new Set(["port", "connectTimeout", "idleTimeout"]);
const CODES: Readonly<Record<string, ConfigCode>> = {
  name: "E_NAME_FORMAT",
  host: "E_NAME_FORMAT",
  port: "E_PORT_RANGE",
  sourceInterface: "E_NAME_FORMAT",
  sourceFromClusterIP: "E_DEPENDENCY",
  connectTimeout: "E_RANGE",
  idleTimeout: "E_RANGE",
  healthCheck: "E_RANGE",
};

function readService(raw: RawItem, isOn: boolean, isMember: boolean): Reading<Service> {
  const tidy = tidyFields(raw.fields, KNOWN, NUMERIC);
  // Older configuration has a bare flag here, which was withdrawn and means nothing.
  if (typeof tidy["healthCheck"] === "boolean") delete tidy["healthCheck"];
  const { fields: item, rejected } = judgeFields(raw, ServiceItem, tidy, CODES);
  if (item === undefined) return { rejected, notices: [] };
  const notices: ConfigIssue[] = [];
  if (item.sourceFromClusterIP === true && !isMember) {
    notices.push(configIssue("E_DEPENDENCY", raw, "sourceFromClusterIP", "ignored: the node is in no cluster"));
  }
  const transport = transportOf(item.protocol);
  const { id, path, index } = raw;
  const service: Service = {
    id,
    path,
    index,
    enabled: isOn && (item.enabled ?? true),
    name: item.name,
    protocol: item.protocol,
    transport,
    host: item.host,
    port: item.port,
    ...defined({ sourceInterface: item.sourceInterface }),
    sourceFromClusterIP: item.sourceFromClusterIP === true && isMember,
    connectTimeoutMs: Math.round((item.connectTimeout ?? DEFAULT_CONNECT_TIMEOUT) * 1000),
    idleTimeoutMs:
      item.idleTimeout === undefined ? DEFAULT_IDLE_TIMEOUT_MS[transport] : Math.round(item.idleTimeout * 1000),
    ...(item.healthCheck === undefined ? {} : { healthCheck: healthCheckOf(item.healthCheck) }),
    description: item.description ?? "",
  };
  return { item: service, rejected, notices };
}

function healthCheckOf({ interval, failures, successes }: z.infer<typeof HealthCheck>): HealthChecking {
  return {
    intervalMs: Math.round((interval ?? DEFAULT_HEALTH_CHECK.interval) * 1000),
    failures: failures ?? DEFAULT_HEALTH_CHECK.failures,
    successes: successes ?? DEFAULT_HEALTH_CHECK.successes,
  };
}

/** Says what a field needs of another, also where more is wrong with the item. */
function checked<T extends z.ZodType<JsonObject>>(schema: T): T {
  return schema.superRefine(
    ({ sourceFromClusterIP, sourceInterface }, context) => {
      if (sourceFromClusterIP !== true || sourceInterface !== undefined) return;
      context.addIssue({ code: "custom", path: ["sourceFromClusterIP"], message: "needs sourceInterface" });
    },
    { when: ({ value }) => isObject(value) },
  );
}
