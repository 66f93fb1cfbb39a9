export type ExecType = "service" | "recurring" | "onDemand";

/** `config.exec` as a node uses it: everything filled in, sets sorted, nothing that could not be read. */
export interface ExecConfig {
  readonly containers: readonly ContainerSpec[];
  readonly volumes: readonly VolumeSpec[];
  /** Caps for all containers together; `cpuMax` in percent of one core. */
  readonly limits: ResourceLimits;
  /** Ids of enabled definitions that are invalid; their containers are not changed. */
  readonly left?: readonly string[];
  /** Names of volumes with invalid definitions; they are not changed. */
  readonly leftVolumes?: readonly string[];
  /** Some invalid entries have no readable name, so that nothing may be removed for being absent. */
  readonly isPartial?: true;
}

/** One container definition. */
export interface ContainerSpec {
  readonly id: string;
  /** JSON path of the item; prefix of its issues. */
  readonly path: string;
  readonly name: string;
  readonly enabled: boolean;
  readonly execType: ExecType;
  readonly image: { readonly repository: string; readonly tag: string };
  /** Words that replace the image's own; undefined keeps those. */
  readonly command: readonly string[] | undefined;
  /** The container's name when undefined. */
  readonly hostname: string | undefined;
  /** As the image has it when undefined. */
  readonly user: string | undefined;
  readonly privileged: boolean;
  readonly useInit: boolean;
  readonly stopTimeSeconds: number;
  readonly requireConnectivity: boolean;
  readonly saveOutput: boolean;
  /** Only for a recurring container. */
  readonly schedule: Schedule | undefined;
  /** IPv4 address of a resolver instead of the node's. */
  readonly dns: string | undefined;
  /** A pinned address on the container bridge. */
  readonly ip: string | undefined;
  /** Whether any extended part came with the record: without one a new service may be half written. */
  readonly isExtended: boolean;
  /** Names without `CAP_`, sorted. */
  readonly capabilities: { readonly add: readonly string[]; readonly drop: readonly string[] };
  readonly healthCheck: HealthCheck | undefined;
  readonly interfaces: readonly VirtualInterface[];
  /** `cpuMax` in percent of the whole machine. */
  readonly limits: ResourceLimits;
  readonly ulimits: readonly Ulimit[];
  readonly logging: { readonly maxFileSizeMb: number; readonly numFiles: number };
  readonly mounts: readonly Mount[];
  readonly portMappings: readonly PortMapping[];
  /** Values may be secret: they reach the engine and nothing else. Sorted by name. */
  readonly variables: readonly { readonly name: string; readonly value: string }[];
  readonly virtualNetworks: readonly VirtualNetworkUse[];
  /** Undefined: the machine's own routing. */
  readonly vrf: string | undefined;
}

/** Schedule of a recurring container: an interval, or five cron fields in UTC. */
export type Schedule =
  | { readonly kind: "rate"; readonly everySeconds: number; readonly text: string }
  | { readonly kind: "cron"; readonly text: string };

/** Only reported; nothing is restarted for it. `test` is as the Engine API has it, `["CMD", …]` or `["CMD-SHELL", line]`. */
export interface HealthCheck {
  readonly test: readonly string[];
  readonly intervalSeconds: number;
  readonly timeoutSeconds: number;
  readonly startPeriodSeconds: number;
  readonly retries: number;
}

/** Limits of a container; the default applies to an absent one. Rates in bytes or operations per second. */
export interface ResourceLimits {
  /** Percent: of one core for all containers together, of the whole machine for one container. */
  readonly cpuMax?: number;
  readonly memMaxBytes?: number;
  /** Memory above which the kernel throttles it; never above `memMaxBytes`. */
  readonly memHighBytes?: number;
  readonly ioRbps?: number;
  readonly ioWbps?: number;
  readonly ioRiops?: number;
  readonly ioWiops?: number;
}

/** −1 is without limit; `soft` is never above `hard`. */
export interface Ulimit {
  readonly type: string;
  readonly soft: number;
  readonly hard: number;
}

export interface Mount {
  readonly kind: "volume" | "bind";
  /** The name of a volume, or an absolute path of the machine. */
  readonly source: string;
  readonly dest: string;
}

export interface PortMapping {
  readonly protocol: "tcp" | "udp";
  /** Link of the machine. */
  readonly iface: string;
  readonly hostPort: number;
  readonly containerPort: number;
}

/** A link of the machine whose traffic is forwarded to the container. */
export interface VirtualInterface {
  readonly name: string;
  readonly dest: { readonly link: string } | { readonly address: string };
}

export interface VirtualNetworkUse {
  readonly network: string;
  readonly ip: string;
  readonly allowOutbound: boolean;
}

export interface VolumeSpec {
  readonly path: string;
  readonly name: string;
  readonly encrypted: boolean;
  /** Directory in the node's data store; `volumes/<name>` when undefined. */
  readonly location: string | undefined;
}
