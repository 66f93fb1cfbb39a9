import { z } from "zod";
import { Requires } from "../../values/features.ts";
import { Description, says, whole } from "../common/fields.ts";
import {
  Address,
  ADDRESS_PATTERN,
  DeviceName,
  Flag,
  LINE,
  LinkRef,
  list,
  METRIC,
  Network,
  NETWORK_LIMITS,
  NETWORK_PATTERN,
  Uid,
} from "./fields.ts";

const text = () => z.string(says("must be text"));
const item = says("must be an object");
const about = { uid: Uid.optional(), description: Description, requires: Requires };

/** A route of a VRF or of the default context. */
export const VrfRouteItem = z.looseObject(
  {
    dest: Network,
    dev: LinkRef.optional(),
    via: Address.optional(),
    metric: whole(METRIC.min, METRIC.max).optional().meta({ description: "The lowest wins" }),
    ...about,
  },
  item,
);

/** A translation of addresses: an absent match is any. */
export const NatItem = z.looseObject(
  {
    source: Network.optional(),
    dest: Network.optional(),
    toSource: Network.optional(),
    toDest: Network.optional(),
    masquerade: Flag.optional().meta({ description: "Use the address of the interface it leaves by" }),
    ...about,
  },
  item,
);

const Protocol = z.enum(["any", "icmp", "tcp", "udp"], says("must be one of any, icmp, tcp, udp"));
const PORTS = says("must be a port or a range such as 1000-2000, within 1..65535");
const Ports = text()
  .regex(/^[1-9]\d{0,4}(?:-[1-9]\d{0,4})?$/, { ...PORTS, abort: true })
  .refine((ports) => {
    const [first = 0, last = first] = ports.split("-").map(Number);
    return first <= last && last <= 65_535;
  }, PORTS);
const Line = whole(LINE.min, LINE.max).optional().meta({ description: "The lowest is tried first; without one, last" });

/** Filter rule; the first match decides. */
export const AclItem = z.looseObject(
  {
    line: Line,
    protocol: Protocol,
    source: Network,
    dest: Network,
    ports: Ports.optional(),
    action: z.enum(["allow", "accept", "drop", "reject"], says("must be one of allow, drop, reject")),
    ...about,
  },
  item,
);

const RuleEnd = text().regex(
  new RegExp(`^(?:public|private|${NETWORK_PATTERN})$`),
  says("must be an IPv4 network, public or private"),
);
const TARGET = says("must be an IPv4 address, or one with a port such as 192.0.2.1:8080");
const ACTIONS = ["accept", "drop", "reject", "forward", "dnat", "mirror", "log"] as const;

/** Rule applied before routing; the first match decides. */
export const RuleItem = z.looseObject(
  {
    line: Line,
    protocol: Protocol,
    source: RuleEnd,
    dest: RuleEnd,
    ports: Ports.optional(),
    in: LinkRef.optional().meta({ description: "The interface it comes in by" }),
    action: z.enum(ACTIONS, says(`must be one of ${ACTIONS.join(", ")}`)),
    iface: LinkRef.optional().meta({ description: "The interface it goes out by" }),
    vrf: DeviceName.optional().meta({ description: "The VRF it is handed to" }),
    snat: Flag.optional(),
    dnat: text()
      .regex(new RegExp(`^${ADDRESS_PATTERN}(?::[1-9]\\d{0,4})?$`), { ...TARGET, abort: true })
      .refine((target) => Number(target.split(":")[1] ?? 1) <= 65_535, TARGET)
      .optional(),
    dmac: text()
      .regex(/^[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}$/, says("must be a MAC address such as 02:00:5e:00:53:01"))
      .optional(),
    ...about,
  },
  item,
);

/** The lists of one routing context. */
export const routingLists = {
  routes: list(VrfRouteItem, NETWORK_LIMITS.routes),
  nats: list(NatItem, NETWORK_LIMITS.nats),
  acls: list(AclItem, NETWORK_LIMITS.acls),
  rules: list(RuleItem, NETWORK_LIMITS.rules),
} as const;

/** The fields of a VRF that are not lists. */
export const vrfFields = {
  name: DeviceName,
  description: Description,
  forwarding: Flag.optional(),
  requires: Requires,
} as const;

export const VrfItem = z.looseObject({ ...vrfFields, ...routingLists }, item);
