import type { CreateBody, EngineVersion, UpdateBody } from "../../../host/engine/engine.ts";
import type { Upheld } from "../../containers/model/upheld.ts";
import type { ContainerSpec, HealthCheck } from "../../../protocol/sections/exec/config.ts";
import { compileLimits, type CompiledLimits, type HostFacts } from "./compile-limits.ts";
import { compileMounts, OWNER_LABEL, type VolumeLookup } from "./compile-mounts.ts";
import { definitionHash, limitsHash } from "./hash.ts";
import { imageReference, type ImageReference, type Registry } from "./image-reference.ts";
import { checkPrivileges, type ContainerPolicy } from "./policy.ts";
import { defined } from "../../../lib/defined.ts";

/** All inputs other than the definition. */
export interface Placement {
  /** Uid of the node. */
  readonly owner: string;
  readonly host: HostFacts;
  /** Name of the engine's network, and the default resolver; undefined for the engine's own. */
  readonly network: { readonly name: string; readonly resolver?: string };
  /** Address reserved for this container; a pinned address takes precedence. Without either the engine chooses. */
  readonly address?: string;
  readonly registry?: Registry;
  readonly volumes: (name: string) => VolumeLookup;
  readonly policy: ContainerPolicy;
  readonly hashKey: Buffer;
  readonly nonce: string;
  /** Parent control group of all containers. Always set or never: a change replaces all containers. */
  readonly cgroupParent?: string;
  /** Returns the address of a link. Set only if the firewall must not be changed and the engine publishes ports. */
  readonly publishes?: (iface: string) => string | undefined;
  readonly product?: EngineVersion["product"];
}

/** Request to the engine. */
export interface Compiled {
  readonly image: ImageReference;
  readonly body: CreateBody;
  /** Changes with everything that requires a new container; also the label `io.holdfast.hash`. */
  readonly hash: string;
  /** Changes with `update` and `memoryHighBytes` only. Not a label, since labels cannot be changed. */
  readonly limitsHash: string;
  /** Body of an update if only the limits changed. */
  readonly update: UpdateBody;
  /** Undefined unless the engine is Docker; others report values that were not requested. */
  readonly upheld: Upheld | undefined;
  /** Value for `memory.high`, set after each start. */
  readonly memoryHighBytes: number;
  /** Each starts with a JSON path relative to the item. */
  readonly warnings: readonly string[];
}

export interface Refusal {
  readonly refused: string;
  /** True if the refusal can end without a new definition, as for a volume that does not exist yet. */
  readonly isPassing: boolean;
}

const LABELS = {
  owner: OWNER_LABEL,
  container: "io.holdfast.container",
  hash: "io.holdfast.hash",
  nonce: "io.holdfast.nonce",
  type: "io.holdfast.type",
} as const;

const PIDS_LIMIT = 4096;
/** Makes the kernel kill a container before the agent. */
const OOM_SCORE_ADJ = 500;
const NS_PER_S = 1_000_000_000;
const MAX_SECONDS = 366 * 86_400;

/** Compiles a definition to a `POST /containers/create` request, or returns why it must not run. `checkBinds` checks binds. */
export function compileContainer(spec: ContainerSpec, where: Placement): Compiled | Refusal {
  const forbidden = checkPrivileges(spec, where.policy);
  if (forbidden !== undefined) return { refused: forbidden, isPassing: false };
  const image = imageReference(spec.image, where.registry);
  if ("refused" in image) return { refused: image.refused, isPassing: false };
  const mounts = compileMounts(spec.mounts, where.volumes, where.owner);
  if ("missing" in mounts) return { refused: mounts.missing, isPassing: true };

  const limits = compileLimits(spec, where.host);
  const ports = publishedPorts(spec, where.publishes);
  const address = spec.ip ?? where.address;
  const hash = definitionHash(where.hashKey, spec, {
    address,
    cgroupParent: where.cgroupParent,
    diskDevice: hasIoLimit(spec) ? where.host.diskDevice : undefined,
    hasEncryptedVolume: mounts.hasEncryptedVolume,
    published: ports.texts,
  });
  const resolver = spec.dns ?? where.network.resolver;
  return {
    image,
    hash,
    limitsHash: limitsHash(where.hashKey, { ...limits.update, high: limits.memoryHighBytes }),
    update: limits.update,
    upheld: where.product === "docker" ? upheldOf(spec, where, limits, mounts.hasEncryptedVolume) : undefined,
    memoryHighBytes: limits.memoryHighBytes,
    warnings: [...limits.warnings, ...ports.warnings],
    body: {
      Image: image.reference,
      ...defined({ Cmd: spec.command }),
      // The engine makes the hostname a DNS name of the container; the default is a name that the container has already.
      Hostname: spec.hostname ?? spec.name,
      ...defined({ User: spec.user }),
      Env: spec.variables.map(({ name, value }) => `${name}=${value}`),
      StopTimeout: spec.stopTimeSeconds,
      ...(spec.healthCheck === undefined ? {} : { Healthcheck: healthCheck(spec.healthCheck) }),
      Labels: {
        [LABELS.owner]: where.owner,
        [LABELS.container]: spec.id,
        [LABELS.hash]: hash,
        [LABELS.nonce]: where.nonce,
        [LABELS.type]: spec.execType,
      },
      ...(ports.texts.length === 0 ? {} : { ExposedPorts: ports.exposed }),
      HostConfig: {
        ...limits.update,
        ...limits.fixed,
        ...(ports.texts.length === 0 ? {} : { PortBindings: ports.bindings }),
        ...defined({ CgroupParent: where.cgroupParent }),
        ...(resolver === undefined ? {} : { Dns: [resolver] }),
        Init: spec.useInit,
        Privileged: spec.privileged,
        CapAdd: spec.capabilities.add.toSorted(),
        CapDrop: spec.capabilities.drop.toSorted(),
        Mounts: mounts.mounts,
        NetworkMode: where.network.name,
        LogConfig: logConfig(spec, where.product),
        RestartPolicy: { Name: restartPolicyOf(spec, mounts.hasEncryptedVolume) },
        PidsLimit: PIDS_LIMIT,
        OomScoreAdj: OOM_SCORE_ADJ,
      },
      NetworkingConfig: {
        EndpointsConfig: {
          [where.network.name]: {
            Aliases: [spec.name],
            ...(address === undefined ? {} : { IPAMConfig: { IPv4Address: address } }),
          },
        },
      },
    },
  };
}

function upheldOf(
  spec: ContainerSpec,
  { network, address }: Placement,
  { update }: CompiledLimits,
  hasEncryptedVolume: boolean,
): Upheld {
  return {
    resources: { ...update, PidsLimit: PIDS_LIMIT },
    restartPolicy: restartPolicyOf(spec, hasEncryptedVolume),
    network: { name: network.name, alias: spec.name, address: spec.ip ?? address },
  };
}

/** Returns the engine's restart policy. The engine must not start a service at boot whose volume is locked. */
export function restartPolicyOf(
  spec: Pick<ContainerSpec, "execType">,
  hasEncryptedVolume: boolean,
): "unless-stopped" | "no" {
  return spec.execType === "service" && !hasEncryptedVolume ? "unless-stopped" : "no";
}

const hasIoLimit = ({ limits }: ContainerSpec): boolean =>
  [limits.ioRbps, limits.ioWbps, limits.ioRiops, limits.ioWiops].some((rate) => rate !== undefined);

/** The engine takes 0 for the image's own value. */
function healthCheck(check: HealthCheck): Record<string, unknown> {
  const ns = (seconds: number, least: number): number =>
    Math.round(Math.min(Math.max(seconds, least), MAX_SECONDS) * NS_PER_S);
  return {
    Test: check.test,
    Interval: ns(check.intervalSeconds, 1),
    Timeout: ns(check.timeoutSeconds, 1),
    StartPeriod: ns(check.startPeriodSeconds, 0),
    Retries: Math.max(Math.floor(check.retries), 1),
  };
}

/** Log settings: Docker uses its own format unless other programs read the output. Podman supports neither format and rotates by size. */
function logConfig(spec: ContainerSpec, product: Placement["product"]): Record<string, unknown> {
  const { maxFileSizeMb, numFiles } = spec.logging;
  const size = { "max-size": `${maxFileSizeMb}m` };
  if (product === "podman") return { Type: "k8s-file", Config: size };
  return {
    Type: spec.saveOutput ? "json-file" : "local",
    Config: {
      ...size,
      "max-file": String(numFiles),
      // The engine compresses rotated files and rejects compression if there are none.
      ...(!spec.saveOutput && numFiles < 2 ? { compress: "false" } : {}),
    },
  };
}

function publishedPorts({ portMappings }: ContainerSpec, addressOf: Placement["publishes"]) {
  const exposed: Record<string, object> = {};
  const bindings: Record<string, { HostIp: string; HostPort: string }[]> = {};
  const texts: string[] = [];
  const warnings: string[] = [];
  for (const { protocol, iface, hostPort, containerPort } of addressOf === undefined ? [] : portMappings) {
    const address = addressOf?.(iface);
    if (address === undefined) {
      warnings.push(`portMappings: port ${hostPort} is not published, since ${iface} has no address`);
      continue;
    }
    const port = `${containerPort}/${protocol}`;
    exposed[port] = {};
    (bindings[port] ??= []).push({ HostIp: address, HostPort: String(hostPort) });
    texts.push(`${address}:${hostPort}:${port}`);
  }
  return { exposed, bindings, texts, warnings };
}
