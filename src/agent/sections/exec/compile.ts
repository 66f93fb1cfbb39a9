import type { CreateBody, EngineVersion, UpdateBody } from "../../../host/engine/engine.ts";
import type { Upheld } from "../../containers/model/upheld.ts";
import type { ContainerSpec, HealthCheck } from "../../../protocol/sections/exec/config.ts";
import { compileLimits, type CompiledLimits, type HostFacts } from "./compile-limits.ts";
import { compileMounts, OWNER_LABEL, type VolumeLookup } from "./compile-mounts.ts";
import { definitionHash, limitsHash } from "./hash.ts";
import { imageReference, type ImageReference, type Registry } from "./image-reference.ts";
import { checkPrivileges, type ContainerPolicy } from "./policy.ts";
import { defined } from "../../../lib/defined.ts";

/** Everything but the definition that decides what a container is. */
export interface Placement {
  /** Uid of the node. */
  readonly owner: string;
  readonly host: HostFacts;
  /** Name of the engine's network, and the resolver of containers that name none: the engine's own when undefined. */
  readonly network: { readonly name: string; readonly resolver?: string };
  /** Kept for this container; one that the definition pins comes first. The engine chooses when there is neither. */
  readonly address?: string;
  readonly registry?: Registry;
  readonly volumes: (name: string) => VolumeLookup;
  readonly policy: ContainerPolicy;
  readonly hashKey: Buffer;
  readonly nonce: string;
  /** Parent of the control groups of all containers. Always given or never: a change of it replaces them. */
  readonly cgroupParent?: string;
  /** Says the address of a link. Given only where the firewall may not be touched, and the engine has to publish ports itself. */
  readonly publishes?: (iface: string) => string | undefined;
  readonly product?: EngineVersion["product"];
}

/** What the engine is asked for. */
export interface Compiled {
  readonly image: ImageReference;
  readonly body: CreateBody;
  /** Changes with everything that needs a new container; also the label `io.holdfast.hash`. */
  readonly hash: string;
  /** Changes with `update` and `memoryHighBytes` alone. No label, since those cannot be changed. */
  readonly limitsHash: string;
  /** For a container whose limits alone have changed. */
  readonly update: UpdateBody;
  /** Undefined for an engine other than Docker, which reports values that were not asked for. */
  readonly upheld: Upheld | undefined;
  /** To be set as `memory.high` after each start. */
  readonly memoryHighBytes: number;
  /** JSON path first, without the item's own. */
  readonly warnings: readonly string[];
}

export interface Refusal {
  readonly refused: string;
  /** Whether it may pass without a new definition: a volume that is not there yet. */
  readonly isPassing: boolean;
}

export const LABELS = {
  owner: OWNER_LABEL,
  container: "io.holdfast.container",
  hash: "io.holdfast.hash",
  nonce: "io.holdfast.nonce",
  type: "io.holdfast.type",
} as const;

const PIDS_LIMIT = 4096;
/** The kernel should end a container before the agent. */
const OOM_SCORE_ADJ = 500;
const NS_PER_S = 1_000_000_000;
const MAX_SECONDS = 366 * 86_400;

/** The name of a definition's container in the engine. */
export const engineNameOf = (id: string): string => `holdfast-${id}`;

/** Turns a definition into a request for `POST /containers/create`, or says why it must not be run. Binds are checked by `checkBinds`. */
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
      // The engine makes it a DNS name of the container, so without one it must be a name that the container has already.
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

/** The engine restarts plain services itself. It must not start one at boot whose volume is still locked. */
export function restartPolicyOf(
  spec: Pick<ContainerSpec, "execType">,
  hasEncryptedVolume: boolean,
): "unless-stopped" | "no" {
  return spec.execType === "service" && !hasEncryptedVolume ? "unless-stopped" : "no";
}

const hasIoLimit = ({ limits }: ContainerSpec): boolean =>
  [limits.ioRbps, limits.ioWbps, limits.ioRiops, limits.ioWiops].some((rate) => rate !== undefined);

/** 0 means "as the image has it" to the engine. */
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

/** Docker keeps output in its own form unless others are to read it. Podman has neither of its two, and turns one file over by size. */
function logConfig(spec: ContainerSpec, product: Placement["product"]): Record<string, unknown> {
  const { maxFileSizeMb, numFiles } = spec.logging;
  const size = { "max-size": `${maxFileSizeMb}m` };
  if (product === "podman") return { Type: "k8s-file", Config: size };
  return {
    Type: spec.saveOutput ? "json-file" : "local",
    Config: {
      ...size,
      "max-file": String(numFiles),
      // The engine compresses old files, and refuses to when there are none.
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
