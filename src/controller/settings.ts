import { isIP } from "node:net";
import { z } from "zod";
import { InputError } from "../errors.ts";
import { supervisionOf, writesToJournal, type Supervision } from "../host/process/service-manager.ts";
import { Origin } from "../protocol/documents/claims.ts";
import { parseCidr } from "../lib/net/cidr.ts";
import { describeIssues } from "../protocol/channel/envelope.ts";
import { RegistryPlace } from "../protocol/documents/registry.ts";
import { Base64Url32, Fqdn } from "../protocol/values/values.ts";

/** A license names eight keys at most, and one may be our own. */
const MAX_FRONT_PINS = 7;

/** What an operator may say about a controller; everything but where to listen and where to keep state has a default. */
export const ControllerSettings = z.object({
  /** `host:port`, an IPv6 address in brackets; port 0 takes a free one. */
  listen: z.string().max(300).transform(readListen),
  dataDir: z.string().min(1).max(4096),
  /** Origin that nodes dial; by default the listening address. */
  publicUrl: Origin.optional(),
  domain: Fqdn.optional(),
  /** PEM files; both or none. */
  tlsCert: z.string().min(1).optional(),
  tlsKey: z.string().min(1).optional(),
  /** `self` makes a certificate even on loopback. */
  tls: z.literal("self").optional(),
  /** SHA-256 of the public key of each front end that ends TLS before us (RFC 7469), base64url; our own is known. */
  frontPins: z.array(Base64Url32).max(MAX_FRONT_PINS).default([]),
  /** Addresses and blocks of front ends whose `X-Forwarded-For` names their clients. */
  trustedProxies: z.array(z.string().max(64).transform(readBlock)).max(32).default([]),
  /** Origin of the API of the image registry. */
  registryUrl: Origin.optional(),
  /** What references and nodes call it; the host of its origin unless told. */
  registryHost: RegistryPlace.shape.host.optional(),
  /** Directory whose files are offered as releases. */
  releasesDir: z.string().min(1).max(4096).optional(),
  heartbeatSeconds: z.int().min(10).max(300).default(30),
  /** Sessions kept at a time; nodes beyond it are told to come back later. */
  maxSessions: z.int().min(1).max(100_000).default(20_000),
});
export type ControllerSettings = z.infer<typeof ControllerSettings>;
export type ControllerSettingsInput = z.input<typeof ControllerSettings>;

/** What an operator calls each setting: the option of the command line, where there is one. */
const NAMES: ReadonlyMap<PropertyKey, string> = new Map([
  ["listen", "--listen"],
  ["dataDir", "--data"],
  ["publicUrl", "--url"],
  ["domain", "--domain"],
  ["tlsCert", "--tls-cert"],
  ["tlsKey", "--tls-key"],
  ["tls", "--tls"],
  ["frontPins", "--front-pin"],
  ["trustedProxies", "--trusted-proxy"],
  ["registryUrl", "--registry"],
  ["registryHost", "--registry-host"],
  ["releasesDir", "--releases"],
]);

/** Whether the log goes to the journal. */
export function isLogInJournal(): boolean {
  return writesToJournal(process.env);
}

/** Who runs this process, and what it waits for. */
export function readSupervision(): Supervision {
  return supervisionOf(process.env, process.pid);
}

/** How the one port is served. */
export type TlsMode = "none" | "self" | "files";

/**
 * Checks the settings of a controller.
 * @throws {InputError} `invalid-settings`, naming each option.
 */
export function controllerSettings(input: ControllerSettingsInput): ControllerSettings {
  const parsed = ControllerSettings.safeParse(input);
  if (!parsed.success) throw new InputError("invalid-settings", describeIssues(named(parsed.error)).join("; "));
  const settings = parsed.data;
  if ((settings.tlsCert === undefined) !== (settings.tlsKey === undefined)) {
    throw new InputError("invalid-settings", "--tls-cert and --tls-key go together");
  }
  if (isWildcard(settings.listen.host) && settings.publicUrl === undefined) {
    throw new InputError("invalid-settings", "--url: needed when listening on every address");
  }
  if (settings.registryHost !== undefined && settings.registryUrl === undefined) {
    throw new InputError("invalid-settings", "--registry-host: needs --registry");
  }
  checkFrontPins(settings);
  return Object.freeze(settings);
}

/** The same issues under the names that the operator gave. */
function named({ issues }: z.ZodError): z.ZodError {
  return new z.ZodError(
    issues.map((issue) => ({
      ...issue,
      path: issue.path.map((part, at) => (at === 0 ? (NAMES.get(part) ?? part) : part)),
    })),
  );
}

/** A license always carries pins, so whoever ends TLS for us must be known by its keys. */
function checkFrontPins(settings: ControllerSettings): void {
  const isHttps = settings.publicUrl?.startsWith("https:") === true;
  const count = settings.frontPins.length;
  if (count > 0 && !isHttps) throw new InputError("invalid-settings", "--front-pin: needs an https --url");
  if (isHttps && count === 0 && tlsModeOf(settings) === "none") {
    throw new InputError(
      "invalid-settings",
      `--url: ${settings.publicUrl} is https and this controller serves plain HTTP; name the keys of the front end ` +
        "with --front-pin, or serve TLS here with --tls or --tls-cert and --tls-key",
    );
  }
}

/** The registry's host as it stands in references; undefined without a registry. */
export function registryHostOf({ registryUrl, registryHost }: ControllerSettings): string | undefined {
  return registryUrl === undefined ? undefined : (registryHost ?? new URL(registryUrl).host);
}

/** Plain HTTP is for loopback only; elsewhere a certificate is made when none is given. */
export function tlsModeOf(settings: ControllerSettings): TlsMode {
  if (settings.tlsCert !== undefined) return "files";
  return settings.tls === "self" || !isLoopback(settings.listen.host) ? "self" : "none";
}

/** Whether an address or name means this machine only. */
export function isLoopback(host: string): boolean {
  if (isIP(host) === 4) return host.startsWith("127.");
  return host === "::1" || host === "localhost";
}

function readBlock(text: string, context: z.RefinementCtx): string {
  const block = parseCidr(text);
  if (block !== undefined) return block.text;
  context.addIssue({ code: "custom", message: `${text} is no address and no block of addresses` });
  return z.NEVER;
}

function isWildcard(host: string): boolean {
  return host === "0.0.0.0" || host === "::";
}

function readListen(text: string, context: z.RefinementCtx): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2] ?? "";
  const port = Number(match?.[3]);
  if (host === "" || !Number.isInteger(port) || port > 65_535) {
    context.addIssue({ code: "custom", message: "must be host:port, an IPv6 address in brackets" });
    return z.NEVER;
  }
  return { host, port };
}
