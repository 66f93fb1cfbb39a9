import { isIPv4 } from "node:net";
import { z } from "zod";
import { Host } from "../../values/values.ts";
import { isPresent } from "./forms.ts";

/** Returns one message for every error of a field; a missing field is reported as required. */
export const says = (text: string) => ({
  error: ({ input }: { readonly input?: unknown }) => (input === undefined ? "is required" : text),
});

/** Returns the messages of a number; a number written as text has its own. */
const saysNumber = (text: string, kind: string) => ({
  error: ({ input }: { readonly input?: unknown }) =>
    typeof input === "string" ? `is text, and must be ${kind}` : says(text).error({ input }),
});

/** A whole number within bounds. */
export function whole(min: number, max: number, text = `must be a whole number, ${min}..${max}`) {
  const error = saysNumber(text, `a whole number, ${min}..${max}`);
  return z.int(error).min(min, error).max(max, error);
}

/** A number within bounds. */
export function decimal(min: number, max: number) {
  const error = saysNumber(`must be a number, ${min}..${max}`, `a number, ${min}..${max}`);
  return z.number(error).min(min, error).max(max, error);
}

/** A number within bounds, or 0 for no limit; `isWhole` excludes fractions. */
export function limitOrZero(min: number, max: number, { isWhole = false } = {}) {
  const kind = `a ${isWhole ? "whole " : ""}number, ${min}..${max}, or 0 for none`;
  const error = saysNumber(`must be ${kind}`, kind);
  const number = isWhole ? z.int(error) : z.number(error);
  return number
    .min(0, error)
    .max(max, error)
    .refine((value) => value === 0 || value >= min, error);
}

/** An object with these fields and no other. */
export const closed = <S extends z.ZodRawShape>(shape: S) =>
  z.strictObject(shape, {
    error: ({ code, input }) => {
      if (code === "unrecognized_keys") return undefined;
      return says("must be an object").error({ input });
    },
  });

/** A text that may be absent, null or empty, which all mean that it is not set. */
export const textOrUnset = <T extends z.ZodType<string>>(text: T) => z.union([text, z.literal(["", null])]).optional();

/** A number that may be absent, null or 0, which all mean that it is not set. */
export const numberOrUnset = <T extends z.ZodType<number>>(number: T) =>
  z.union([number, z.literal([0, null])]).optional();

/** A flag that may be absent or null, which both mean false. */
export const FlagOrUnset = z.boolean(says("must be true or false")).nullish();

/** Reports whether a field is set: one that is absent, null, "", 0 or false is not. */
export const isSet = (value: unknown): boolean => isPresent(value) && value !== "" && value !== 0 && value !== false;

/** A text of one line. */
export const oneLine = (most: number) =>
  z
    .string(says("must be text"))
    .min(1, says("must not be empty"))
    .max(most, says(`must have at most ${most} characters`))
    // oxlint-disable-next-line no-control-regex -- they are what is refused
    .regex(/^[^\x00-\x1f\x7f]*$/, says("must not have control characters"));

/** The name of a node or of a cluster, or its FQDN. */
export const NodeRef = z
  .string(says("must be text"))
  .regex(/^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$/, says("must be the name of a node or a cluster"));

/** An IPv4 address or a DNS name. */
export const Ipv4OrName = z
  .string(says("must be text"))
  .max(253, { error: "must have at most 253 characters", abort: true })
  .refine(isIpv4OrName, says("must be an IPv4 address or a DNS name"));

export const Enabled = z.boolean(says("must be true or false")).optional();
export const Description = z.string(says("must be text")).max(4096, says("must be at most 4096 characters")).optional();
export const MAX_INDEX = 1_000_000_000;
/** Order in lists, and of two items that collide the later one loses. */
export const Index = whole(0, MAX_INDEX).optional();
export const ItemPort = whole(1, 65_535, "must be 1..65535");

/** Returns why an IPv4 address cannot be listened on (RFC 6890, RFC 5771), or undefined. */
export function notListenable(address: string): string | undefined {
  if (!isIPv4(address)) return "must be an IPv4 address";
  if (address === "0.0.0.0") return undefined;
  const first = Number(address.split(".")[0]);
  const own = "must be an address of the node, or 0.0.0.0 for all";
  if (address === "255.255.255.255") return `${address} is the broadcast address; ${own}`;
  if (first >= 224 && first < 240) return `${address} is a multicast address; ${own}`;
  return first === 0 ? `${address} is no address of a machine; ${own}` : undefined;
}

/** Seconds without a byte after which a flow is ended. */
export const IdleTimeout = decimal(1, 2_592_000).optional();

/** UDP flows expire after a minute; TCP keeps what is merely quiet, for a day. */
export const DEFAULT_IDLE_TIMEOUT_MS = { tcp: 900_000, udp: 60_000 } as const;

/** Reports whether text is an IPv4 address or a DNS name. Text that ends in a number must be an address. */
export function isIpv4OrName(text: string): boolean {
  if (isIPv4(text)) return true;
  return Host.safeParse(text).success && !text.includes(":") && !/(?:^|\.)\d+\.?$/.test(text);
}

const PROTOCOLS = ["tcp", "udp", "ftp", "tftp", "rdp", "vnc", "ssh"] as const;
const WITHDRAWN: ReadonlySet<string> = new Set(["http", "https", "wireguard"]);

/** Protocols of connectors and services; `rdp`, `vnc` and `ssh` are `tcp` with a hint for people. */
export const L4Protocol = z.enum(PROTOCOLS, {
  error: ({ input }) => {
    if (input === undefined) return "is required";
    const allowed = `must be one of ${PROTOCOLS.join(", ")}`;
    return isWithdrawn(input) ? `${input} belonged to remote-access applications; ${allowed}` : allowed;
  },
});
export type L4Protocol = z.infer<typeof L4Protocol>;

/** Reports whether a protocol belongs to an application type that the platform has withdrawn. */
export const isWithdrawn = (protocol: unknown): protocol is string =>
  typeof protocol === "string" && WITHDRAWN.has(protocol);

/** The protocol on the wire. */
export const transportOf = (protocol: L4Protocol): "tcp" | "udp" =>
  protocol === "udp" || protocol === "tftp" ? "udp" : "tcp";

/** Application protocol that opens further connections, and on which both ends must agree. */
export const applicationOf = (protocol: L4Protocol): "ftp" | "tftp" | undefined =>
  protocol === "ftp" || protocol === "tftp" ? protocol : undefined;
