import { isIP } from "node:net";
import { join, normalize, resolve } from "node:path";
import { parseArgs } from "node:util";
import { z } from "zod";
import { HostError, InputError, toError } from "../errors.ts";
import type { Files } from "../host/files/files.ts";
import { stateFile, valueOf, type StateFile } from "../host/files/state-file.ts";
import type { SetHosts } from "../host/net/system-resolve.ts";
import { supervisionOf, writesToJournal, type Supervision } from "../host/process/service-manager.ts";
import { parseCidr } from "../lib/net/cidr.ts";
import { isLoopback, parseNoProxy, type ProxySettings } from "../lib/net/proxy.ts";
import { parseStrictJson } from "../lib/formats/strict-json.ts";
import { describeIssues } from "../protocol/channel/envelope.ts";
import { Host, IpAddress, JsonObject, Text256 } from "../protocol/values/values.ts";
import type { MeshLiterals } from "../protocol/overlay/mesh.ts";
import { MANAGED_OVERLAY } from "../protocol/overlay/overlay.ts";
import { ManifestAddress, UPGRADE_PATHS } from "../protocol/documents/release.ts";
import type { JobSettings } from "./data-store/jobs.ts";
import type { Profile } from "./profile.ts";
import type { ContainerPolicy } from "./sections/exec/policy.ts";
import { defined } from "../lib/defined.ts";

const HttpUrl = z
  .string()
  .max(512)
  .refine((text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol), "must be an http or https address");
const ProxyUrl = z
  .string()
  .max(512)
  .refine((text) => URL.canParse(text) && new URL(text).protocol === "http:", "must be an http:// proxy address");

/** Addresses that replace those of the name servers for names on the path to the control plane. */
const HostsFile = z
  .record(
    Host.refine((name) => isIP(name) === 0, "must be a name").transform((name) => name.toLowerCase()),
    z.array(IpAddress).min(1).max(8),
  )
  .refine((hosts) => Object.keys(hosts).length <= 64, "must not have more than 64 names");

const AbsolutePath = z
  .string()
  .max(1024)
  .refine((text) => text.startsWith("/") && normalize(text) === text, "must be an absolute path in its shortest form");

const Block = z
  .string()
  .max(64)
  .refine((text) => parseCidr(text) !== undefined, "must be an IP address or a CIDR");

const UNITS = { Kbps: 125, Mbps: 125_000, Gbps: 125_000_000 } as const;

/** Limits of the data store. */
const DataStoreFile = z.strictObject({
  maxBytes: z.int().min(0).optional(),
  reservePercent: z.number().min(0).max(90).optional(),
  maxTransfers: z.int().min(1).max(16).optional(),
  maxBandwidth: z
    .strictObject({ value: z.number().positive().max(1_000_000), unit: z.enum(["Kbps", "Mbps", "Gbps"]) })
    .optional(),
  maxRequests: z.int().min(1).max(64).optional(),
  allowAddresses: z.array(Block).max(64).optional(),
  proxyNames: z.array(Text256).max(256).optional(),
  s3: z
    .array(
      z.strictObject({
        bucket: z.string().regex(/^(?:\*|[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])$/, "must be the name of a bucket, or *"),
        endpoint: HttpUrl.optional(),
        region: z
          .string()
          .regex(/^[A-Za-z0-9-]{1,64}$/)
          .optional(),
        pathStyle: z.boolean().default(false),
        credentials: AbsolutePath.optional(),
      }),
    )
    .max(64)
    .optional(),
});

/** The address of the metrics: an IP address and a port. Not beyond this machine unless `allowRemote` is set, since access is not checked. */
const MetricsFile = z
  .strictObject({
    listen: z
      .string()
      .max(64)
      .refine((text) => splitListen(text) !== undefined, "must be an IP address and a port, such as 127.0.0.1:9464"),
    allowRemote: z.boolean().optional(),
  })
  .superRefine(({ listen, allowRemote }, context) => {
    const { host } = splitListen(listen) ?? { host: "127.0.0.1" };
    if (allowRemote === true || isLoopback(host)) return;
    const message = `${host} is not this machine's alone: metrics tell of the node, and nobody is asked for a password; "allowRemote": true serves them all the same`;
    context.addIssue({ code: "custom", path: ["listen"], message });
  });

/** The address of the metrics. */
export interface MetricsSettings {
  readonly host: string;
  readonly port: number;
}

/** `127.0.0.1:9464` or `[::1]:9464`. */
function splitListen(text: string): MetricsSettings | undefined {
  const [, bracketed, bare, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(text) ?? [];
  const host = bracketed ?? bare ?? "";
  const port = Number(digits);
  if (isIP(host) !== (bracketed === undefined ? 4 : 6) || !(port >= 1 && port <= 65_535)) return undefined;
  return { host, port };
}

const UnitName = z.string().regex(/^[A-Za-z0-9@._-]{1,128}\.service$/, "must be the name of a service unit");
const LogLevel = z.enum(["debug", "info", "warn", "error"]);

/** Local settings and local policy, `/etc/holdfast/agent.json`; every field is optional. */
export const AgentFile = z.strictObject({
  logLevel: LogLevel.optional(),
  proxy: ProxyUrl.optional(),
  noProxy: z.array(Text256).max(256).optional(),
  hosts: HostsFile.optional(),
  /** The unit that supervises the agent; present only in a managed install, where restarts and reboots are allowed. */
  unit: UnitName.optional(),
  /** An appliance owns the machine; an agent leaves network and containers to it. */
  profile: z.enum(["appliance", "agent"]).optional(),
  speedTestUrl: HttpUrl.optional(),
  repositoryUrl: HttpUrl.optional(),
  /** The section network of an appliance while no document has one: before it is registered, and after. */
  network: JsonObject.optional(),
  /** Socket of the container engine; by default Docker's, else Podman's. */
  engineSocket: AbsolutePath.optional(),
  /** Permissions of containers beyond the defaults. */
  containers: z
    .strictObject({
      allowPrivileged: z.boolean().optional(),
      allowBinds: z.array(AbsolutePath).max(64).optional(),
      allowCapabilities: z
        .array(z.string().regex(/^(?:CAP_)?[A-Z][A-Z_]{1,31}$/))
        .max(64)
        .optional(),
      events: z.boolean().optional(),
    })
    .optional(),
  /** The addresses that connectors of other nodes may reach here, besides the services. */
  services: z
    .strictObject({ allowAddresses: z.array(Block).max(64).optional(), allowOwnAddresses: z.boolean().optional() })
    .optional(),
  dataStore: DataStoreFile.optional(),
  /** Path or address of the manifest of the release to upgrade to. */
  upgrade: z.strictObject({ manifest: ManifestAddress.optional() }).optional(),
  /** The address of the metrics for Prometheus; by default they are not served. */
  metrics: MetricsFile.optional(),
});

/** A problem of the settings file that did not prevent the start. */
export interface SettingsProblem {
  /** `unknown-setting`: members that were ignored; `bad-settings`: the last good copy is used instead. */
  readonly code: "unknown-setting" | "bad-settings";
  readonly message: string;
}

/** Limits of the data store, with defaults. */
export interface DataStoreSettings extends Omit<JobSettings, "proxies"> {
  /** File of certificate authorities that transfers trust in addition to the runtime's own. */
  readonly caFile: string | undefined;
}

/** The settings of the agent, from command line, environment and file. */
export interface AgentSettings {
  readonly stateDir: string;
  readonly runDir: string;
  /** The settings file that the command line named. */
  readonly config?: string | undefined;
  readonly logLevel: string;
  readonly proxies: ProxySettings;
  /** Addresses of names on the path to the control plane that are set by hand. */
  readonly hosts?: SetHosts;
  readonly unit: string | undefined;
  readonly profile: Profile;
  /** The directories of the overlay program's state and of its socket. */
  readonly overlay: { readonly stateDir: string; readonly runDir: string };
  readonly speedTestUrl: string | undefined;
  readonly repositoryUrl: string | undefined;
  /** The section network while no document has one. */
  readonly network?: JsonObject;
  /** Socket of the container engine; found automatically when undefined. */
  readonly engineSocket: string | undefined;
  readonly containers: ContainerPolicy;
  /** Whether events about failing containers are raised. */
  readonly containerEvents?: boolean;
  /** The literal addresses that connectors of other nodes may reach; none when undefined. */
  readonly literals?: MeshLiterals | undefined;
  readonly dataStore: DataStoreSettings;
  readonly upgrade: {
    /** Default: the control plane's own. */
    readonly manifest: string | undefined;
    /** The directories of installed versions, and of the package's version. */
    readonly versionsDir: string;
    readonly packageDir: string;
  };
  /** The address of the metrics; undefined if they are not served. */
  readonly metrics?: MetricsSettings | undefined;
  /** The supervisor of this process, and what it waits for. */
  readonly supervision: Supervision;
  /** Whether the log goes to the journal. */
  readonly isJournal?: boolean;
  readonly problems?: readonly SettingsProblem[];
  /** The text of the file, if it is valid. */
  readonly fileText?: string | undefined;
}

const LIMITS = { maxBytes: 256 * 1024, maxDepth: 8 };
export const DEFAULT_STATE_DIR = "/var/lib/holdfast";
const DEFAULT_RUN_DIR = "/run/holdfast";
const DEFAULT_FILE = "/etc/holdfast/agent.json";

/** The settings file with which an agent last started; it replaces a damaged one. */
function lastGoodSettings(files: Files, stateDir: string): StateFile<{ readonly text: string }> {
  const schema = z.object({ text: z.string().max(LIMITS.maxBytes) });
  return stateFile(files, { path: `${stateDir}/reported/settings.json`, schema, keepsPrevious: false });
}

/** Saves the text of a valid settings file, if it differs from the saved one. */
export async function keepSettings(files: Files, stateDir: string, text: string): Promise<void> {
  const file = lastGoodSettings(files, stateDir);
  if (valueOf(await file.load())?.text !== text) await file.save({ text });
}

/**
 * Reads command line, environment and settings file, in this order of precedence. Members of the file that this version does not know are
 * ignored. A file that cannot be used, or is no regular file, is replaced by the last valid one, or on a registered node by the defaults.
 * Both are named in `problems`.
 * @throws {InputError} `usage`, or `bad-settings` without a saved copy or a registration, naming the option or the field.
 */
export async function readSettings(argv: readonly string[], files: Files): Promise<AgentSettings> {
  const options = readOptions(argv);
  const env = process.env;
  const stateDir = resolve(options.state ?? env["HOLDFAST_STATE"] ?? DEFAULT_STATE_DIR);
  const { config } = options;
  const read = await readFile(files, { path: config ?? DEFAULT_FILE, isAsked: config !== undefined, stateDir });
  const { file, problems, fileText } = read;
  const runDir = resolve(options.run ?? env["HOLDFAST_RUN"] ?? DEFAULT_RUN_DIR);
  const unit = file.unit ?? fromOptional("HOLDFAST_UNIT", UnitName, env["HOLDFAST_UNIT"]);
  const proxy = file.proxy ?? env["HTTPS_PROXY"] ?? env["https_proxy"];
  return {
    stateDir,
    runDir,
    config: options.config,
    logLevel: file.logLevel ?? fromVariable("HOLDFAST_LOG_LEVEL", LogLevel, env["HOLDFAST_LOG_LEVEL"] ?? "info"),
    proxies: {
      ...(proxy === undefined || proxy === "" ? {} : { https: new URL(fromVariable("HTTPS_PROXY", ProxyUrl, proxy)) }),
      noProxy: file.noProxy ?? parseNoProxy(env["NO_PROXY"] ?? env["no_proxy"]),
    },
    ...defined({ hosts: file.hosts }),
    unit,
    profile: file.profile ?? "appliance",
    overlay: unit === undefined ? { stateDir: join(stateDir, "overlay"), runDir } : MANAGED_OVERLAY,
    speedTestUrl: file.speedTestUrl,
    repositoryUrl: file.repositoryUrl,
    ...defined({ network: file.network }),
    engineSocket: file.engineSocket,
    containers: {
      allowPrivileged: file.containers?.allowPrivileged ?? false,
      allowBinds: file.containers?.allowBinds ?? [],
      allowCapabilities: file.containers?.allowCapabilities ?? [],
    },
    ...(file.containers?.events === undefined ? {} : { containerEvents: file.containers.events }),
    ...literalsOf(file.services),
    dataStore: dataStoreSettings(file.dataStore, env["NODE_EXTRA_CA_CERTS"]),
    upgrade: {
      manifest: file.upgrade?.manifest,
      versionsDir: env["HOLDFAST_VERSIONS"] ?? UPGRADE_PATHS.versions,
      packageDir: env["HOLDFAST_LIB"] ?? UPGRADE_PATHS.package,
    },
    metrics: file.metrics === undefined ? undefined : splitListen(file.metrics.listen),
    supervision: supervisionOf(env, process.pid),
    isJournal: writesToJournal(env),
    problems,
    fileText,
  };
}

function literalsOf(services: z.infer<typeof AgentFile>["services"]): Pick<AgentSettings, "literals"> {
  const allow = services?.allowAddresses ?? [];
  if (allow.length === 0) return {};
  return { literals: services?.allowOwnAddresses === true ? { allow, own: true } : { allow } };
}

/** Adds the defaults. Pure. */
export function dataStoreSettings(file: z.infer<typeof DataStoreFile> = {}, caFile?: string): DataStoreSettings {
  const { maxBandwidth } = file;
  return {
    maxBytes: file.maxBytes,
    reserveRatio: (file.reservePercent ?? 10) / 100,
    maxTransfers: file.maxTransfers ?? 2,
    maxBytesPerSecond: maxBandwidth === undefined ? undefined : maxBandwidth.value * UNITS[maxBandwidth.unit],
    maxRequests: file.maxRequests ?? 10,
    allowAddresses: file.allowAddresses ?? [],
    proxyNames: file.proxyNames ?? [],
    buckets: file.s3 ?? [],
    caFile: caFile === "" ? undefined : caFile,
  };
}

const OPTIONS = { state: { type: "string" }, run: { type: "string" }, config: { type: "string" } } as const;

/** The options of `holdfast agent`, without dashes. */
export const optionNames: readonly string[] = Object.keys(OPTIONS);

function readOptions(argv: readonly string[]): { state?: string; run?: string; config?: string } {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: OPTIONS,
      strict: true,
      allowPositionals: false,
    });
    return values;
  } catch (error) {
    throw new InputError("usage", error instanceof Error ? error.message : String(error), { cause: error });
  }
}

type LocalSettings = z.infer<typeof AgentFile>;

interface FileRead {
  readonly file: LocalSettings;
  readonly problems: readonly SettingsProblem[];
  readonly fileText: string | undefined;
}

async function readFile(
  files: Files,
  { path, isAsked, stateDir }: { readonly path: string; readonly isAsked: boolean; readonly stateDir: string },
): Promise<FileRead> {
  const text = await files.read(path).catch(toError);
  if (text === undefined) {
    if (isAsked) throw new InputError("bad-settings", `${path} does not exist`);
    return { file: {}, problems: [], fileText: undefined };
  }
  try {
    if (text instanceof Error) throw text;
    const { file, unknown } = parseFile(text);
    const names = unknown.join(", ");
    const message = `${path}: ${names}: not a setting of this version, and ignored; correct or remove it`;
    return { file, problems: unknown.length === 0 ? [] : [{ code: "unknown-setting", message }], fileText: text };
  } catch (thrown) {
    const why = thrown instanceof HostError ? thrown.message : `${path}: ${toError(thrown).message}`;
    const error = new InputError("bad-settings", why, { cause: thrown });
    const instead = await insteadOf(files, stateDir);
    if (instead === undefined) throw error;
    const message = `${error.message}; ${instead.text}: correct the file, and restart the agent`;
    return { file: instead.file, problems: [{ code: "bad-settings", message }], fileText: undefined };
  }
}

/**
 * Returns the settings that replace a file that cannot be used: those of the last start, else the defaults, which permit nothing. Undefined
 * for a machine that was never registered: it has no session to lose, and the person who installs it sees the mistake at once.
 */
async function insteadOf(
  files: Files,
  stateDir: string,
): Promise<{ readonly file: LocalSettings; readonly text: string } | undefined> {
  const good = await lastGoodSettings(files, stateDir)
    .inspect()
    .catch(() => undefined);
  if (good?.is === "good") {
    return { file: parseFile(good.value.text).file, text: "the settings of the last good start are used instead" };
  }
  const { identityFiles } = await import("./identity/identity.ts");
  const registration = await identityFiles(files, stateDir)
    .registration.inspect()
    .catch(() => undefined);
  const known = registration === undefined ? undefined : valueOf(registration);
  if (known === undefined) return undefined;
  // An appliance needs its network to be reachable; a node of type Agent leaves the network to the machine.
  const profile = known.node.type === "Agent" ? "agent" : "appliance";
  return {
    file: { profile },
    text: `no settings of a good start are left, and the defaults for an ${profile} are used, with no local policy that allows more`,
  };
}

/** Parses the text of a settings file; unknown members are named rather than rejected. */
function parseFile(text: string): { readonly file: LocalSettings; readonly unknown: readonly string[] } {
  const value = parseStrictJson(text, LIMITS);
  const parsed = AgentFile.safeParse(value);
  if (parsed.success) return { file: parsed.data, unknown: [] };
  const unknown = parsed.error.issues.flatMap((issue) =>
    issue.code === "unrecognized_keys" ? issue.keys.map((key) => [...issue.path, key]) : [],
  );
  const known = AgentFile.safeParse(unknown.reduce(without, value));
  if (!known.success) throw new InputError("bad-settings", describeIssues(known.error).join("; "));
  return { file: known.data, unknown: unknown.map((path) => path.join(".").slice(0, 128)).slice(0, 16) };
}

/** Returns a copy of a JSON value without the member at a path. */
function without(value: unknown, [key, ...rest]: readonly PropertyKey[]): unknown {
  if (typeof value !== "object" || value === null || key === undefined) return value;
  if (Array.isArray(value)) return value.map((item: unknown, at) => (at === key ? without(item, rest) : item));
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]): [string, unknown][] => {
      if (name !== key) return [[name, inner]];
      return rest.length === 0 ? [] : [[name, without(inner, rest)]];
    }),
  );
}

function fromVariable<T>(name: string, schema: z.ZodType<T>, text: string): T {
  const parsed = schema.safeParse(text);
  if (parsed.success) return parsed.data;
  throw new InputError("bad-settings", `${name}: ${describeIssues(parsed.error).join("; ")}`);
}

/** Treats an empty value as not set, as a unit's `Environment=NAME=` sets it. */
function fromOptional<T>(name: string, schema: z.ZodType<T>, text = ""): T | undefined {
  return text === "" ? undefined : fromVariable(name, schema, text);
}
