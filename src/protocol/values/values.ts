import { isIP } from "node:net";
import { z } from "zod";
import { issueText } from "./issue-text.ts";

/** A node's identifier (RFC 9562), lower case. */
export const Uid = z.uuid().toLowerCase();
export type Uid = z.infer<typeof Uid>;

/** A node's own name: the first label of its FQDN. */
export const NodeName = z
  .string()
  .regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/, "lower-case letters, digits and dashes, no dash first or last");

/** A domain or a fully qualified name below it (RFC 1123), lower case. */
export const Fqdn = z
  .string()
  .max(253)
  .regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/, "not a domain name");

const HOST_LABEL = /^[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$/;

/** An IPv4 or IPv6 address or an RFC 1123 name; never anything that a tool could take for an option. */
export const Host = z
  .string()
  .min(1)
  .max(253)
  .refine(isHost, "must be an IP address or a host name")
  .meta({ description: "IPv4 or IPv6 address, or an RFC 1123 host name" });

function isHost(text: string): boolean {
  if (isIP(text) !== 0) return !text.includes("%");
  const name = text.endsWith(".") ? text.slice(0, -1) : text;
  return name.split(".").every((label) => HOST_LABEL.test(label));
}

/** An address a socket can be bound to. */
export const IpAddress = z
  .string()
  .max(45)
  .refine((text) => isIP(text) !== 0, "must be an IPv4 or IPv6 address");

/** An address block, or an address alone (RFC 4632, RFC 4291 §2.3). */
export const AddressBlock = z.string().max(49).refine(isAddressBlock, "must be an IP address or a CIDR block");

function isAddressBlock(text: string): boolean {
  const [, address = "", prefix] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = address.includes("%") ? 0 : isIP(address);
  return family !== 0 && (prefix === undefined || Number(prefix) <= (family === 4 ? 32 : 128));
}

export const Port = z.int().min(1).max(65_535);

/**
 * Returns the pattern of a link's name: at most `most` of the characters, which do not include `-` and `.`, of those two, and of digits;
 * neither `.` nor `..`, and not `-` first. Without lookahead, which not every language has.
 */
export function linkPattern(characters: string, most: number, first = `0-9${characters}`): string {
  const all = `[0-9${characters}.-]`;
  const second = `\\.[0-9${characters}-]${all}{0,${most - 2}}`;
  return `[${first}]${all}{0,${most - 1}}|${second}|\\.\\.${all}{1,${most - 2}}`;
}

/** The name of a network link as Linux allows it. */
export const LinkName = z
  .string()
  .regex(new RegExp(`^(?:${linkPattern("A-Za-z_@:", 15)})$`), "not the name of a network interface");

/** 32 bytes as 43 base64url characters: nonces, thumbprints (RFC 7638), key pins (RFC 7469). */
export const Base64Url32 = z.string().regex(/^[A-Za-z0-9_-]{43}$/, "must be 43 base64url characters");

/** A JWS in compact form (RFC 7515). */
export const Jws = z
  .string()
  .max(64 * 1024 * 1024)
  .regex(/^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/, "not a compact JWS");

/** Document versions, counters and sequence numbers: whole, exact in a double. */
export const Version = z.int().min(0);

/** Seconds since 1970, as JWT claims have them; a fraction is accepted. */
export const UnixSeconds = z.number().min(0).max(253_402_300_799);

/** Milliseconds since 1970. */
export const UnixMilliseconds = z.int().min(0);

/** The name of a trigger event or of a container: an open set, so only its form is fixed. */
export const EventName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, "letters, digits, '-', '_' and '.', at most 64");

/** Tag names and values. */
export const TagText = z.string().regex(/^[A-Za-z0-9_-]{1,128}$/, "letters, digits, '-' and '_', at most 128");
export const Tags = z.record(TagText, TagText);

/** Schemas of text by maximum length, shared because each schema costs an idle agent 2.5 kB. */
export const Text64 = z.string().max(64);
export const Text128 = z.string().max(128);
export const Text253 = z.string().max(253);
export const Text256 = z.string().max(256);
export const Text512 = z.string().max(512);
export const Text1024 = z.string().max(1024);
export const Text4096 = z.string().max(4096);

/** Limits of a map: characters of a name, and names in all, those of maps inside it included. */
interface MapLimits {
  readonly minName: number;
  readonly maxName: number;
  readonly maxNames: number;
  /** Reports whether a value is valid without the schema, as nearly all are; must not accept what the schema refuses. */
  readonly isPlain: (value: unknown) => boolean;
}

/**
 * Map of names to values of a schema. Reports too many names, or the first wrong member only: to describe each wrong one of a message full
 * of them takes seconds.
 */
export function boundedMap<S extends z.ZodType>(member: S, { minName, maxName, maxNames, isPlain }: MapLimits) {
  const findFault = (value: unknown, { issues }: z.core.ParsePayload): unknown => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
    const refuse = (message: string, path: PropertyKey[]): unknown => {
      issues.push({ code: "custom", message, path, input: value });
      return value;
    };
    const members: readonly (readonly [string, unknown])[] = Object.entries(value);
    let names = 0;
    for (const [name, inner] of members) {
      names += 1 + namesIn(inner);
      if (names > maxNames) return refuse(`must not have more than ${maxNames} names`, []);
      if (name.length < minName || name.length > maxName)
        return refuse(`a key has ${minName} to ${maxName} characters`, [name]);
      if (isPlain(inner)) continue;
      const found = member.safeParse(inner).error?.issues[0];
      if (found !== undefined) return refuse(issueText(found), [name, ...found.path]);
    }
    return value;
  };
  const propertyNames = { type: "string", ...(minName === 0 ? {} : { minLength: minName }), maxLength: maxName };
  const map = z.object({}).catchall(member).meta({ propertyNames, maxProperties: maxNames });
  return z.preprocess(findFault, map).nonoptional();
}

const namesIn = (value: unknown): number =>
  typeof value === "object" && value !== null ? Object.keys(value).length : 0;

export const NodeType = z.enum(["Node", "Agent"]);
export type NodeType = z.infer<typeof NodeType>;
export const NodeState = z.enum(["ACTIVE", "INACTIVE"]);
export type NodeState = z.infer<typeof NodeState>;
export const LifecycleState = z.enum(["pre-production", "production", "maintenance", "decommissioned"]);
export type LifecycleState = z.infer<typeof LifecycleState>;

/** Any JSON object. Without a schema for its fields it is three times as fast as a record. */
export const JsonObject = z.looseObject({});
export type JsonObject = z.infer<typeof JsonObject>;
