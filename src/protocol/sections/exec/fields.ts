import { z } from "zod";
import { shellWords } from "../../../lib/text/shell-words.ts";
import { Requires } from "../../values/features.ts";
import { linkPattern } from "../../values/values.ts";
import { decimal, Description, limitOrZero, says, whole } from "../common/fields.ts";
import { Address, DeviceName, Flag, list, Nic, Uid } from "../network/fields.ts";

/** Most entries of each list in the section. */
export const EXEC_LIMITS = {
  commands: 1000,
  volumes: 1000,
  mounts: 128,
  portMappings: 1024,
  variables: 1024,
  virtualNetworks: 128,
  interfaces: 64,
  ulimits: 64,
  capabilities: 128,
} as const;

export const MEGABYTE = 1024 * 1024;
/** Minimum memory that container engines accept, in megabytes. */
export const MIN_MEMORY_MB = 6;
const MAX_MEMORY_MB = 64 * MEGABYTE;
const MAX_RATE = Number.MAX_SAFE_INTEGER;
const ONE_DAY = 86_400;

const CAPABILITIES =
  "AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM";
/** The capabilities that there are, without `CAP_` (capabilities(7)). */
export const capabilities: ReadonlySet<string> = new Set(CAPABILITIES.split(" "));
/** The limits of a process that can be set (prlimit(1)). */
export const ulimitTypes = [
  "core",
  "cpu",
  "data",
  "fsize",
  "locks",
  "memlock",
  "msgqueue",
  "nice",
  "nofile",
  "nproc",
  "rss",
  "rtprio",
  "rttime",
  "sigpending",
  "stack",
] as const;

const text = () => z.string(says("must be text"));
const object = says("must be an object");
const bothCases = <const T extends string>(values: readonly T[]) =>
  z.enum([...values, ...values.map((value) => value.toUpperCase())], says(`must be one of ${values.join(", ")}`));

/** A whole number that some clients write as text. */
function wholeOrText(min: number, max: number) {
  const error = says(`must be a whole number, ${min}..${max}`);
  const written = z
    .string()
    .regex(/^\d{1,10}$/)
    .refine((digits) => Number(digits) >= min && Number(digits) <= max, error);
  return z.union([z.int(error).min(min, error).max(max, error), written], error);
}

/** Name of a container or volume, used in DNS, in paths and as a trigger event. */
export const ContainerName = text().regex(
  /^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$/,
  says("must be 1..63 letters, digits, dots, dashes and underscores, the first a letter or a digit"),
);

const COMPONENT = "[a-z0-9]+(?:(?:\\.|_{1,2}|-+)[a-z0-9]+)*";
/** Image reference without the host of the registry. */
export const Image = z.looseObject(
  {
    repository: text()
      .max(255, says("must have at most 255 characters"))
      .regex(
        new RegExp(`^(?:[a-zA-Z0-9.-]{1,253}(?::\\d{1,5})?/)?${COMPONENT}(?:/${COMPONENT})*$`),
        says("must be a repository such as example.net/team/app, without tag"),
      )
      .meta({ description: "`<namespace>/<path>`, or a public reference" }),
    tag: text()
      .regex(/^(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|sha256:[0-9a-f]{64})$/, says("must be a tag or a digest sha256:…"))
      .meta({ description: "A tag, or a digest `sha256:…`" }),
  },
  object,
);

const Line = (most: number) => text().max(most, says(`must have at most ${most} characters`));
const MAX_LINE = 32_768;
/** Returns why a command cannot be split. */
export const NOT_WORDS = "has a quote that is never closed, or no word";

/** The fields of the record of a container, but for its identity. */
export const recordFields = {
  name: ContainerName.meta({ description: "Also its name in DNS and of the trigger that starts and stops it" }),
  description: Description,
  enabled: Flag.optional().meta({ description: "Whether it may run at all; true by default" }),
  execType: z.enum(["service", "recurring", "onDemand"], says("must be one of service, recurring, onDemand")),
  image: Image,
  command: Line(MAX_LINE).optional().meta({ description: "Words in place of the image's own, as in a shell" }),
  hostname: text()
    .regex(/^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$/, says("must be one label of a DNS name"))
    .optional()
    .meta({ description: "The container's name by default; not the name of another container" }),
  user: text()
    .regex(/^[A-Za-z0-9_][\w.-]{0,31}\$?(?::[A-Za-z0-9_][\w.-]{0,31}\$?)?$/, says("must be user or user:group"))
    .optional()
    .meta({ description: "A name or a number, with or without a group" }),
  privileged: Flag.optional(),
  useInit: Flag.optional().meta({ description: "A small init as process 1" }),
  stopTime: wholeOrText(0, ONE_DAY)
    .optional()
    .meta({ description: "Seconds between the signal to stop and the kill; 30 by default" }),
  requireConnectivity: Flag.optional().meta({ description: "Wait for the control plane where a volume is encrypted" }),
  saveOutput: Flag.optional().meta({ description: "Keep its output at the control plane" }),
  schedule: Line(256)
    .optional()
    .meta({ description: "`rate(<n> minutes|hours|days)` or five cron fields, in UTC; of a recurring one" }),
  dns: Address.optional().meta({ description: "A resolver in place of the node's" }),
  ip: Address.optional().meta({ description: "An address on the bridge of the containers; one is chosen by default" }),
  requires: Requires,
} as const;

const Capability = text().regex(
  new RegExp(`^(?:CAP_)?(?:${[...capabilities].join("|")})$`, "i"),
  says("must be the name of a capability"),
);
const DroppedCapability = text().regex(
  new RegExp(`^(?:ALL|(?:CAP_)?(?:${[...capabilities].join("|")}))$`, "i"),
  says("must be the name of a capability, or ALL"),
);
export const Capabilities = z.looseObject(
  {
    addCaps: list(Capability, EXEC_LIMITS.capabilities),
    dropCaps: list(DroppedCapability, EXEC_LIMITS.capabilities),
  },
  object,
);

export const ContainerHealthCheck = z.looseObject(
  {
    command: Line(MAX_LINE)
      .min(1, says("must not be empty"))
      .refine((line) => (shellWords(line)?.words.length ?? 0) > 0, says(NOT_WORDS))
      .meta({ description: "Runs in the container; not 0 is bad" }),
    interval: decimal(0, ONE_DAY).optional().meta({ description: "Seconds; 30 by default" }),
    timeout: decimal(0, ONE_DAY).optional().meta({ description: "Seconds; 30 by default" }),
    startPeriod: decimal(0, ONE_DAY).optional().meta({ description: "Seconds; 0 by default" }),
    retries: whole(0, 1000).optional().meta({ description: "Failures in a row; 3 by default" }),
  },
  object,
);

const rates = {
  ioRbps: limitOrZero(1, MAX_RATE, { isWhole: true }).optional().meta({ description: "Bytes read a second" }),
  ioWbps: limitOrZero(1, MAX_RATE, { isWhole: true }).optional().meta({ description: "Bytes written a second" }),
  ioRiops: limitOrZero(1, MAX_RATE, { isWhole: true }).optional().meta({ description: "Reads a second" }),
  ioWiops: limitOrZero(1, MAX_RATE, { isWhole: true }).optional().meta({ description: "Writes a second" }),
} as const;
const CPU = limitOrZero(0.01, 102_400).optional();
const UlimitValue = whole(-1, Number.MAX_SAFE_INTEGER).meta({ description: "-1 is without limit" });
export const UlimitItem = z.looseObject({ type: bothCases(ulimitTypes), soft: UlimitValue, hard: UlimitValue }, object);
export const ContainerLimits = z.looseObject(
  {
    cpuMax: CPU.meta({ description: "Percent of the whole machine; 50 by default" }),
    memMax: limitOrZero(MIN_MEMORY_MB, MAX_MEMORY_MB)
      .optional()
      .meta({ description: "Megabytes; half of the machine's by default" }),
    memHigh: limitOrZero(MIN_MEMORY_MB, MAX_MEMORY_MB)
      .optional()
      .meta({ description: "Megabytes from which it is slowed down; 45 % of the machine's by default" }),
    ...rates,
    limits: list(UlimitItem, EXEC_LIMITS.ulimits),
  },
  object,
);

const NodeMemory = limitOrZero(MIN_MEMORY_MB, Number.MAX_SAFE_INTEGER).optional();
/** Caps for all containers of a node together. */
export const NodeLimits = z.looseObject(
  {
    cpuMax: CPU.meta({ description: "Percent of one core: 200 are two cores" }),
    memMax: NodeMemory.meta({ description: "Bytes from 1048576 on, megabytes below" }),
    memHigh: NodeMemory.meta({ description: "Bytes from 1048576 on, megabytes below" }),
    ...rates,
  },
  object,
);

export const Logging = z.looseObject(
  {
    maxFileSize: whole(1, 102_400).optional().meta({ description: "Megabytes; 10 by default" }),
    maxLogFileSize: whole(1, 102_400).optional().meta({ description: "Another name of `maxFileSize`" }),
    numFiles: whole(1, 1000).optional().meta({ description: "3 by default" }),
  },
  object,
);

// Part of a path, neither `.` nor `..`, without control characters. Not every language has `\\p`.
const CONTROL = "\\x00-\\x1f\\x7f-\\x9f";
const STEP = `(?:[^/.${CONTROL}][^/${CONTROL}]*|\\.[^/.${CONTROL}][^/${CONTROL}]*|\\.\\.[^/${CONTROL}]+)`;
const AbsolutePath = Line(4096).regex(
  new RegExp(`^(?:/(?:\\.|${STEP})?)+$`, "u"),
  says("must be an absolute path, without .. and control characters"),
);
export const MountItem = z
  .looseObject(
    {
      uid: Uid.optional(),
      mountType: bothCases(["volume", "bind"]),
      source: Line(4096).meta({ description: "The name of a volume, or an absolute path of the machine" }),
      dest: AbsolutePath.refine((path) => !/^\/[/.]*$/.test(path), says("must not be the root")),
    },
    object,
  )
  .superRefine(({ mountType, source }, context) => {
    const parsed = (mountType.toLowerCase() === "bind" ? AbsolutePath : ContainerName).safeParse(source);
    for (const { message } of parsed.error?.issues ?? [])
      context.addIssue({ code: "custom", path: ["source"], message });
  });

export const PortMappingItem = z.looseObject(
  {
    uid: Uid.optional(),
    protocol: bothCases(["tcp", "udp"]),
    iface: Nic,
    hostPort: wholeOrText(1, 65_535),
    containerPort: wholeOrText(1, 65_535),
  },
  object,
);

export const VariableItem = z.looseObject(
  {
    name: text().regex(
      new RegExp(`^[^=${CONTROL}]{1,256}$`, "u"),
      says("must be 1..256 characters, without = and control characters"),
    ),
    value: Line(131_072)
      .refine((value) => !value.includes("\0"), says("must not hold the character NUL"))
      .meta({ description: "May be empty. A secret: shown only to who may read the variables" }),
  },
  object,
);

export const VirtualNetworkItem = z.looseObject(
  {
    uid: Uid.optional(),
    network: text()
      .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, says("must be the name of a virtual network"))
      .meta({ description: "The name of a virtual network" }),
    ip: Address.meta({ description: "The container's address there" }),
    allowOutbound: Flag.optional().meta({ description: "Whether it may open connections; false by default" }),
  },
  object,
);

const OCTET = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const IPV4 = `${OCTET}(?:\\.${OCTET}){3}(?:/(?:3[0-2]|[12]?\\d))?`;
/** Packets that come in on the loopback are, to the kernel, the machine's own. */
const HandedOver = Nic.refine(
  (name) => name !== "lo" && name !== "holdfast0" && !name.startsWith("hfc"),
  says("must be neither the loopback nor a link of containers"),
);
export const InterfaceItem = z.looseObject(
  {
    uid: Uid.optional(),
    name: HandedOver,
    dest: text()
      .regex(
        new RegExp(`^(?:${IPV4}|${linkPattern("A-Za-z_", 15, "A-Za-z_")})$`),
        says("must be the name of an interface in the container, or its IPv4 address"),
      )
      .meta({ description: "An interface in the container, or its IPv4 address" }),
  },
  object,
);

export const Vrf = z.looseObject({ name: DeviceName.meta({ description: "`default` is none" }) }, object);

export const VolumeItem = z.looseObject(
  {
    name: ContainerName,
    encrypted: Flag.optional(),
    location: Line(1024)
      .regex(new RegExp(`^${STEP}(?:/${STEP}?)*$`, "u"), says("must be a directory below the data store"))
      .optional()
      .meta({ description: "A directory of the node's data store; `volumes/<name>` by default" }),
  },
  object,
);

/** The parts of a container's extended configuration, by the name each has in the record. */
export const partFields = {
  capabilities: Capabilities.optional(),
  healthCheck: ContainerHealthCheck.optional(),
  interfaces: list(InterfaceItem, EXEC_LIMITS.interfaces),
  limits: ContainerLimits.optional(),
  logging: Logging.optional(),
  mounts: list(MountItem, EXEC_LIMITS.mounts),
  portMappings: list(PortMappingItem, EXEC_LIMITS.portMappings),
  variables: list(VariableItem, EXEC_LIMITS.variables),
  virtualNetworks: list(VirtualNetworkItem, EXEC_LIMITS.virtualNetworks),
  vrf: Vrf.optional(),
} as const;
export type PartName = keyof typeof partFields;
