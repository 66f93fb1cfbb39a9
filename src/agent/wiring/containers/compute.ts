import { randomBytes, randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { z } from "zod";
import { HostError, InputError, toError } from "../../../errors.ts";
import { wholeDiskOf } from "../../../host/process/block-device.ts";
import { controlGroups, type ControlGroups } from "../../../host/process/cgroups.ts";
import type { Clock } from "../../../host/clock.ts";
import { openEngineCache } from "../../../host/engine/open-cache.ts";
import type { EngineInfo } from "../../../host/engine/engine.ts";
import { hostEngine } from "../../../host/engine/host-engine.ts";
import type { OnDamage } from "../../../host/files/damage.ts";
import type { Exec } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import type { Reader } from "../../../host/reader.ts";
import { stateFile, valueOf } from "../../../host/files/state-file.ts";
import type { Config } from "../../../protocol/documents/documents.ts";
import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";
import type { RecordStore } from "../../../host/network/state/record.ts";
import type { NetworkConfig } from "../../../protocol/sections/network/config.ts";
import { DEFAULT_BRIDGE_CIDR } from "../../../protocol/sections/network/fields.ts";
import { containerNetwork } from "../../containers/model/container-network.ts";
import type { Compute } from "../../containers/model/compute.ts";
import { containersOf } from "../../containers/containers.ts";
import { ImageCleaner } from "../../containers/supervision/image-cleaner.ts";
import { Supervisor } from "../../containers/supervision/supervisor.ts";
import type { Seen } from "../../containers/supervision/seen.ts";
import { Ledger } from "../../containers/model/ledger.ts";
import { OWNER_LABEL } from "../../containers/model/own-containers.ts";
import { openCaps } from "./caps.ts";
import { openExposure } from "./exposure.ts";
import { isUp } from "../../containers/model/standing.ts";
import type { Worker } from "../../containers/supervision/worker.ts";
import { volumeAt } from "../../containers/volumes/volume-record.ts";
import { openPolicy } from "./policy.ts";
import { openVolumes } from "./volumes.ts";
import { networksByLink } from "../../../host/network/ip/links.ts";
import { firstAddress, resolverAddress } from "../../sections/exec/addresses.ts";
import { imageReference } from "../../sections/exec/image-reference.ts";
import type { ExecActual, ExecDesired } from "../../sections/exec/actual.ts";
import type { ExecOptions } from "../../sections/exec/section.ts";
import { parsedSections, type ParsedSections } from "../../applying/parsed-sections.ts";
import type { AgentSettings } from "../../settings.ts";
import { effectiveOf } from "../../applying/effective-config.ts";
import type { Desired } from "../../shadow/desired.ts";
import type { AgentState } from "../../state.ts";
import { defined } from "../../../lib/defined.ts";

export interface OpenComputeOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly exec: Exec;
  readonly files: Files;
  readonly reader: Reader;
  readonly settings: Pick<AgentSettings, "stateDir" | "runDir" | "unit" | "overlay" | "engineSocket" | "containers">;
  readonly state: Pick<AgentState, "database">;
  readonly documents: { readonly current: Desired };
  /** The effective configuration. */
  readonly config: () => Config;
  /** Requests a short-lived credential of the platform's registry; rejects at once without a session, undefined without a registration. */
  readonly registryToken: (
    repository: string,
    signal: AbortSignal,
  ) => Promise<{ readonly username: string; readonly password: string }> | undefined;
  /** Requests the key of an encrypted volume, likewise. */
  readonly volumeKey: (volume: string, signal: AbortSignal) => Promise<string> | undefined;
  /** The record of the section `network`. */
  readonly networkRecord: Pick<RecordStore, "load">;
  readonly onDamage: OnDamage;
  /** Returns why this node does not run containers. */
  readonly unsupported: () => string | undefined;
  readonly requestPass: () => void;
  readonly onRefused: (error: unknown) => void;
}

/** Collaborators of the section `exec`, whose surroundings depend on the documents. */
export type ExecParts = Omit<ExecOptions, "surroundings"> & {
  readonly surroundings: (
    documents: Desired,
    ...seen: Parameters<ExecOptions["surroundings"]>
  ) => ReturnType<ExecOptions["surroundings"]>;
};

/** The containers of this node, and the collaborators of the section `exec`. */
export interface OpenedCompute {
  readonly compute: Compute;
  readonly section: ExecParts;
  /** Returns why a path of the data store may not be removed or replaced: a volume is there; undefined if none is. */
  volumeAt(parts: readonly string[]): string | undefined;
  close(): Promise<void>;
}

const Key = z.object({ key: z.string().regex(/^[A-Za-z0-9_-]{43}$/) });
const SOCKETS = ["/var/run/docker.sock", "/run/podman/podman.sock"] as const;
const CREDENTIAL_MS = 10_000;
/** Stop timeout of a container when all move to another network. */
const MOVE_GRACE_S = 10;

/** Opens the containers. No socket is opened, no file read and no timer set before there is a container. */
export function openCompute(options: OpenComputeOptions): OpenedCompute {
  const { clock, files, reader, settings, documents, config } = options;
  const log = options.log.child({ component: "compute" });
  const startedAt = clock.now();
  const ledger = new Ledger(options.state.database.sql);
  const node = () => documents.current.node?.body;
  const owner = (): string => node()?.uid ?? "";
  const parsed = parsedSections();
  const subnet = (): string => bridgeOf(parsed, config(), documents.current);
  const moving = new Set<string>();
  const network = containerNetwork({
    owner,
    subnet,
    gateway: () => firstAddress(subnet()) ?? "",
    reserved: () => ({ resolver: resolverAddress(subnet()) ?? "" }),
    addresses: () => networksByLink(reader),
    async empty(signal) {
      const up = [...supervisor.workers.values()].flatMap(({ standing: { found } }) =>
        found === undefined || found.is === "stopped" ? [] : [found.id],
      );
      for (const id of up) moving.add(id);
      await Promise.all(up.map((id) => supervisor.engine.stopContainer(id, MOVE_GRACE_S, signal).catch(unlessGone)));
    },
  });
  const exposure = openExposure({
    ...options,
    log,
    network,
    stateDir: settings.stateDir,
    isManaged: settings.unit !== undefined,
    engine: () => supervisor.engine,
    record: options.networkRecord,
  });
  const volumes = openVolumes({ ...options, log, ledger, owner, engine: () => supervisor.engine });
  const groups = groupsOf(options);
  const policy = openPolicy({ settings, socketPath: () => socketOf(settings, reader) });
  const caps = openCaps({ reader, groups, info: () => supervisor.info, clock, requestPass: options.requestPass });
  const supervisor: Supervisor = new Supervisor({
    ledger,
    clock,
    log,
    owner,
    nonce: randomUUID,
    open() {
      const engine = hostEngine({ socketPath: socketOf(settings, reader), clock });
      return { engine, cache: openEngineCache({ engine, clock, owner: `${OWNER_LABEL}=${owner()}` }) };
    },
    space: (path) => reader.space(path),
    memoryNodes: () => reader.read("/sys/devices/system/node/online")?.trim() ?? "0",
    ensureNetwork: (engine, signal) => exposure.ensureNetwork(engine, signal),
    hasNetwork: (engine, signal) => exposure.hasNetwork(engine, signal),
    afterStart: async ({ pid, id }, { memoryHighBytes }, signal) => {
      await groups(supervisor.info)?.setMemoryHigh({ pid, id }, memoryHighBytes, signal);
    },
    async credential(repository, signal) {
      const host = node()?.registry?.host;
      if (host === undefined) return undefined;
      const within = AbortSignal.any([signal, AbortSignal.timeout(CREDENTIAL_MS)]);
      const token = await options.registryToken(repository, within);
      return token === undefined ? undefined : { username: token.username, password: token.password, server: host };
    },
    registry: () => node()?.registry,
    forbids: (privileges) => policy.forbids(privileges, supervisor.info),
    isMoving: (id) => moving.delete(id),
    requestPass: options.requestPass,
    onRefused(error) {
      log.warn({ err: toError(error) }, "the ledger of containers was not written");
      options.onRefused(error);
    },
  });
  const cleaner = new ImageCleaner({ supervisor, ledger, clock, log, space: (path) => reader.space(path) });
  supervisor.onChange(() => {
    // The users of a volume are known once every container that was made has been found.
    const isKnown =
      supervisor.engineStanding.state === "well" &&
      [...ledger.definitions.keys()].every((id) => supervisor.workers.has(id));
    if (isKnown) volumes.release((name) => [...supervisor.workers.values()].some((worker) => holds(worker, name)));
  });
  const hashKey = keyOf(files, settings.stateDir);

  const compute = containersOf({
    supervisor,
    startedAt,
    now: () => clock.now(),
    definitions: () => parsed.exec(config().exec).config.containers,
    volumes: () => volumes.statuses(),
    referenceOf(repository, tag) {
      const reference = imageReference({ repository, tag }, node()?.registry);
      if ("refused" in reference) throw new InputError("bad-request", reference.refused);
      return reference.reference;
    },
  });

  async function surroundings(
    of: Desired,
    seen: Seen,
    desired: ExecDesired | undefined,
    signal: AbortSignal,
  ): Promise<Omit<ExecActual, "seen">> {
    const { info } = seen;
    // A document that is only planned names its network itself.
    const tried = of === documents.current ? config() : effectiveOf(of).config;
    const range = bridgeOf(parsed, tried, of);
    const vrfs = networkOf(parsed, tried, of)?.vrfs.map(({ name }) => name) ?? [];
    const exposed = await exposure.observe(desired, { subnet: range, vrfs }, signal);
    const gateway = firstAddress(range) ?? "";
    const resolver = resolverAddress(range) ?? "";
    const body = of.node?.body;
    const disk = info === undefined ? undefined : wholeDiskOf(reader, info.rootDirectory)?.path;
    return {
      isActive: body?.state === "ACTIVE",
      version: `${of.node?.version ?? 0}/${of.cluster?.version ?? 0}`,
      addresses: { subnet: range, reserved: new Set([gateway, resolver]) },
      volumes: volumes.seen(),
      exposure: exposed,
      caps: caps.observe(info),
      check: (spec) => obstacleOf(spec, info),
      forbidden: await policy.forbidden(desired, seen, info),
      outlawed: await policy.outlawed(seen, info),
      placement:
        info === undefined || body === undefined
          ? undefined
          : {
              owner: body.uid,
              host: {
                cpus: info.cpus,
                memoryBytes: info.memoryBytes,
                ...defined({ diskDevice: disk }),
              },
              network: { name: network.name() },
              ...(exposed.state.unusable === undefined
                ? {}
                : { publishes: (iface: string) => exposed.addresses.get(iface)?.[0] }),
              ...defined({ registry: body.registry }),
              volumes: volumes.lookup(desired?.config.volumes ?? []),
              policy: settings.containers,
              hashKey: await hashKey(),
              product: info.product,
              cgroupParent: groups(info)?.parent ?? "",
            },
    };
  }

  /** Returns why the machine cannot start a container. */
  async function obstacleOf(spec: ContainerSpec, info: EngineInfo | undefined): Promise<string | undefined> {
    const verdict = await policy.binds(spec.mounts, info);
    if (verdict.verdict !== "allowed") return verdict.reason;
    return volumes.obstacle(spec);
  }

  return {
    compute,
    section: {
      supervisor,
      surroundings,
      unsupported: () => {
        if (node()?.type === "Agent") return "containers run on nodes of type Node only";
        return options.unsupported();
      },
      settleVolumes: (...args) => volumes.settle(...args),
      limit: (limits, signal) => caps.apply(limits, signal),
      expose: (step, signal) => exposure.apply(step, signal),
    },
    volumeAt: (parts) => {
      const name = volumeAt(ledger.volumes.values(), parts);
      return name === undefined ? undefined : `the volume ${name} is there`;
    },
    async close() {
      cleaner.close();
      volumes.close();
      await supervisor.close();
    },
  };
}

/** Control group of the current engine, by its driver. */
function groupsOf({ reader, exec }: Pick<OpenComputeOptions, "reader" | "exec">) {
  const known = new Map<string, ControlGroups>();
  return (info: EngineInfo | undefined): ControlGroups | undefined => {
    if (info === undefined || info.cgroupDriver === "other") return undefined;
    const groups = known.get(info.cgroupDriver) ?? controlGroups(info.cgroupDriver, { reader, exec });
    known.set(info.cgroupDriver, groups);
    return groups;
  };
}

function socketOf({ engineSocket }: Pick<AgentSettings, "engineSocket">, reader: Reader): string {
  return engineSocket ?? SOCKETS.find((path) => reader.fingerprint(path) !== undefined) ?? SOCKETS[0];
}

/** Returns the range of the applied container network. */
function bridgeOf(parsed: ParsedSections, config: Config, current: Desired): string {
  return networkOf(parsed, config, current)?.bridgeCidr ?? DEFAULT_BRIDGE_CIDR;
}

function networkOf(parsed: ParsedSections, config: Config, { node }: Desired): NetworkConfig | undefined {
  if (node === undefined) return undefined;
  const { type, cluster } = node.body;
  return parsed.network(config.network, type, cluster !== undefined).config;
}

/** Reports whether a container uses a volume, is about to, or may: of a running one without a definition nothing is known. */
function holds({ standing: { found, job }, wanted }: Worker, name: string): boolean {
  if (job === undefined && !isUp(found)) return false;
  return wanted?.spec.mounts.some(({ kind, source }) => kind === "volume" && source === name) ?? true;
}

/** Accepts that a container is gone already. */
function unlessGone(error: unknown): void {
  if (!(error instanceof HostError && error.details?.["status"] === 404)) throw error;
}

/** The key of the hashes; without it the value of a variable cannot be guessed. */
function keyOf(files: Files, stateDir: string): () => Promise<Buffer> {
  const file = stateFile(files, { path: `${stateDir}/identity/containers.json`, schema: Key, keepsPrevious: true });
  let known: Promise<Buffer> | undefined;
  const load = async (): Promise<Buffer> => {
    const kept = valueOf(await file.load())?.key;
    const key = kept ?? randomBytes(32).toString("base64url");
    if (kept === undefined) await file.save({ key });
    return Buffer.from(key, "base64url");
  };
  return () => {
    known ??= load().catch((error: unknown) => {
      known = undefined;
      throw error;
    });
    return known;
  };
}
