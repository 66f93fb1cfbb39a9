import type { SectionName } from "../sections/sections.ts";
import { JsonObject } from "../values/values.ts";

/** Secret fields of an object, and its arrays and objects that contain further ones. */
interface Place {
  readonly secrets?: readonly string[];
  /** If set, all other fields are secret. When stored they are not completed, because an empty value may be intended. */
  readonly shown?: readonly string[];
  /** Field that identifies an item of the array. */
  readonly keyedBy?: readonly string[];
  readonly below?: Readonly<Record<string, Place>>;
}

/** Endings of the names of secret fields in any section, in lower case and without separators. */
const SECRET_ENDINGS = [
  "accesskey",
  "apikey",
  "authkey",
  "credential",
  "encryptionkey",
  "passphrase",
  "passwd",
  "password",
  "presharedkey",
  "privatekey",
  "psk",
  "secret",
  "secretkey",
  "sharedkey",
  "signingkey",
  "token",
] as const;
/** Endings for one section only: elsewhere such a name means something else. */
const SECRET_ENDINGS_OF: Readonly<Partial<Record<SectionName, readonly string[]>>> = {
  apigw: ["key"],
  snmp: ["community", "communitystring"],
};
/** Sections whose schema names every field: a write keeps no other stored field. */
const CLOSED: ReadonlySet<SectionName> = new Set(["alert", "apigw", "cluster", "snmp"]);
/** Fields that identify items of a list without a key. */
const ANY_KEYS = ["id", "uid", "name"] as const;

const VARIABLES: Place = { below: { variables: { keyedBy: ["name"], shown: ["name", "uid"] } } };

const PLACES: Readonly<Partial<Record<SectionName, Place>>> = {
  exec: { below: { commands: { keyedBy: ["id"], below: { ...VARIABLES.below, config: VARIABLES } } } },
  network: { below: { tunnels: { keyedBy: ["name", "type"], secrets: ["psk", "presharedKey"] } } },
  _bgp: {
    below: { groups: { keyedBy: ["name"], below: { peers: { keyedBy: ["name", "ip"], secrets: ["secret"] } } } },
  },
  // An older field that some clients take for a shared secret.
  cluster: { secrets: ["shared"] },
  snmp: { secrets: ["authPassphrase", "privacyPassphrase"] },
  vpn: {
    below: {
      networks: {
        keyedBy: ["name"],
        below: { wireguard: { below: { clients: { keyedBy: ["name"], secrets: ["presharedKey"] } } } },
      },
    },
  },
};

/** Returns a configuration for output: every secret is replaced by the empty text, or by `mark`. */
export function hideSecrets(config: Readonly<Record<string, unknown>>, mark = ""): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(config).map(([name, body]) => [name, hidden(body, placeOf(name), { mark, ...inSection(name) })]),
  );
}

/** Returns the body of a section to store: an absent, null or empty secret keeps the stored value of the same item. */
export function keepSecrets(section: SectionName, body: JsonObject, stored: unknown): JsonObject {
  const endings = CLOSED.has(section) ? [] : inSection(section).endings;
  return JsonObject.parse(kept(body, stored, PLACES[section], endings));
}

const placeOf = (name: string): Place | undefined => new Map<string, Place>(Object.entries(PLACES)).get(name);

/** The mark in place of a secret, and the endings of the names of secrets. */
interface Hiding {
  readonly mark: string;
  readonly endings: readonly string[];
}

const inSection = (name: string): Pick<Hiding, "endings"> => ({
  endings: [
    ...SECRET_ENDINGS,
    ...(new Map<string, readonly string[]>(Object.entries(SECRET_ENDINGS_OF)).get(name) ?? []),
  ],
});

function hidden(value: unknown, place: Place | undefined, hiding: Hiding): unknown {
  const { mark, endings } = hiding;
  if (Array.isArray(value)) return value.map((item) => hidden(item, place, hiding));
  const { shown, secrets = [] } = place ?? {};
  if (!isObject(value)) return shown === undefined ? value : mark;
  // Names are compared without case, because clients differ in it.
  const hides = new Set(secrets.map((name) => name.toLowerCase()));
  const below = new Map(Object.entries(place?.below ?? {}).map(([name, inner]) => [name.toLowerCase(), inner]));
  // An object in place of a list may have items as members.
  const member = place?.keyedBy === undefined ? undefined : place;
  const entries = Object.entries(value).map(([name, inner]) => {
    const known = name.toLowerCase();
    if (hides.has(known) || shown?.includes(name) === false || isSecret(name, inner, endings)) return [name, mark];
    return [name, hidden(inner, below.get(known) ?? (isObject(inner) ? member : undefined), hiding)];
  });
  return Object.fromEntries(entries);
}

function kept(value: unknown, stored: unknown, place: Place | undefined, endings: readonly string[]): unknown {
  if (Array.isArray(value)) {
    const before: readonly unknown[] = Array.isArray(stored) ? stored : [];
    return value.map((item: unknown) => {
      const keys = place === undefined ? keysOf(item) : (place.keyedBy ?? []);
      const same = before.find((other) => isSameItem(item, other, keys));
      return kept(item, same, place, endings);
    });
  }
  if (!isObject(value) || !isObject(stored)) return value;
  const merged: Record<string, unknown> = { ...value };
  const secrets = new Set([
    ...(place?.secrets ?? []),
    ...Object.keys(stored).filter((name) => isSecret(name, stored[name], endings)),
  ]);
  for (const name of secrets) {
    const isBrought = Object.hasOwn(merged, name) && merged[name] !== "" && merged[name] !== null;
    if (!isBrought && Object.hasOwn(stored, name)) merged[name] = stored[name];
  }
  for (const name of Object.keys(value)) {
    const inner = Object.hasOwn(place?.below ?? {}, name) ? place?.below?.[name] : undefined;
    if (!secrets.has(name)) merged[name] = kept(merged[name], stored[name], inner, endings);
  }
  return merged;
}

/** Reports whether a field is secret by its name, a list of secrets included. A boolean of that name is not. */
function isSecret(name: string, value: unknown, endings: readonly string[]): boolean {
  if (typeof value === "boolean" || value === null) return false;
  const plain = name
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]/g, "");
  const single = typeof value === "object" ? plain.replace(/ie?s$|s$/, (end) => (end === "ies" ? "y" : "")) : plain;
  return endings.some((ending) => plain.endsWith(ending) || single.endsWith(ending));
}

function keysOf(item: unknown): readonly string[] {
  const key = isObject(item) ? ANY_KEYS.find((name) => typeof item[name] === "string") : undefined;
  return key === undefined ? [] : [key];
}

/** Reports whether two items are the same by their identifying fields; items without these match nothing. */
function isSameItem(item: unknown, other: unknown, keyedBy: readonly string[]): boolean {
  if (!isObject(item) || !isObject(other)) return false;
  return keyedBy.length > 0 && keyedBy.every((key) => item[key] !== undefined && item[key] === other[key]);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
