import type { z } from "zod";
import type { JsonObject } from "../../values/values.ts";
import { closed, FlagOrUnset, isSet, ItemPort, numberOrUnset, oneLine, textOrUnset, whole } from "../common/fields.ts";
import { isObject } from "../common/forms.ts";
import { Address } from "../network/fields.ts";

const OwnAddress = textOrUnset(Address);
const Counter = numberOrUnset(whole(0, Number.MAX_SAFE_INTEGER, "must be a whole number of at least 0"));
const byPromotion = "changed only by the promotion of a member";

/** Default TCP port of the heartbeat. */
export const HEARTBEAT_PORT = 9000;

/** The section `cluster` of a node: its heartbeat and status endpoint as a member, as strict as the API is. */
export const ClusterSection: z.ZodType<JsonObject> = closed({
  enabled: FlagOrUnset.meta({ description: "Run heartbeat and election; false by default" }),
  host: OwnAddress.meta({
    description: "Address of this node on which it listens for heartbeats; the partner dials it",
  }),
  port: numberOrUnset(ItemPort).meta({ description: `TCP port of the heartbeat; ${HEARTBEAT_PORT} by default` }),
  statusHost: OwnAddress.meta({ description: "Address of the status endpoint; the WAN's by default" }),
  statusPort: numberOrUnset(ItemPort).meta({ description: "HTTP port of the status endpoint; not set is off" }),
  shared: textOrUnset(oneLine(256)).meta({ description: "Kept and not used" }),
  master: FlagOrUnset.meta({ description: `The configured active member; ${byPromotion}` }),
  versionCounter: Counter.meta({ description: `Number of promotions; ${byPromotion}` }),
  masterVersion: Counter.meta({ description: `Number of promotions that the active member knows; ${byPromotion}` }),
  updateTime: Counter.meta({ description: `Unix time of the last promotion; ${byPromotion}` }),
}).superRefine(
  ({ enabled, host, port, statusHost, statusPort }, context) => {
    const add = (field: string, message: string): void => context.addIssue({ code: "custom", path: [field], message });
    if (enabled === true && !isSet(host)) add("host", "is required with enabled");
    const heartbeat = isSet(port) ? port : HEARTBEAT_PORT;
    if (isSet(host) && statusHost === host && statusPort === heartbeat) {
      add("statusPort", `${statusPort} is the port of the heartbeat on this address`);
    }
  },
  { when: ({ value }) => isObject(value) },
);

/** Fields that say which member is the configured active one. */
const ROLE = ["master", "versionCounter", "masterVersion", "updateTime"] as const;

/** A section to store, and a line for each field that nobody may write. */
export interface WithRole {
  readonly section: JsonObject;
  readonly refused: readonly string[];
}

/** Returns the section with the stored role; repeating the stored value of a role's field changes nothing and is accepted. */
export function keepRole(body: JsonObject, stored: JsonObject | undefined): WithRole {
  const refused = ROLE.filter((field) => isSet(body[field]) && body[field] !== stored?.[field]).map(
    (field) => `cluster.${field}: cannot be written: ${hintOf(field)}`,
  );
  return { section: { ...body, ...roleOf(stored) }, refused };
}

/** Returns the fields of a role that are set. */
export function roleOf(stored: JsonObject | undefined): JsonObject {
  return Object.fromEntries(
    ROLE.flatMap((field) => (isSet(stored?.[field]) ? [[field, stored?.[field]] as const] : [])),
  );
}

const hintOf = (field: (typeof ROLE)[number]): string =>
  field === "master"
    ? "PUT /cluster/{clusterFQDN}/active/{nodeID} makes a member the active one"
    : "only the promotion of a member changes it; leave it out";
