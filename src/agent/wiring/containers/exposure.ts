import type { Logger } from "pino";
import { HostError, toError } from "../../../errors.ts";
import { hostConntrack } from "../../../host/network/conntrack.ts";
import type { OnDamage } from "../../../host/files/damage.ts";
import type { Engine } from "../../../host/engine/engine.ts";
import type { Exec } from "../../../host/process/exec.ts";
import { restoreBridge } from "../../../host/exposure/bridge.ts";
import { exposureDriver } from "../../../host/exposure/driver.ts";
import { ExposureRecord } from "../../../host/exposure/record.ts";
import type { Files } from "../../../host/files/files.ts";
import { readListeners, type Listener } from "../../../host/network/ip/listeners.ts";
import type { RecordStore } from "../../../host/network/state/record.ts";
import { toolRunner } from "../../../host/network/ip/tool.ts";
import { privilegedExec } from "../../../host/process/privileged-exec.ts";
import type { Reader } from "../../../host/reader.ts";
import { CONTAINER_LINK, type ContainerNetwork } from "../../containers/model/container-network.ts";
import { addressesByLink } from "../../../host/network/ip/links.ts";
import type { ExposureSeen } from "../../sections/exec/exposure.ts";
import type { ExposureStep } from "../../sections/exec/exposure-plan.ts";
import type { ExecDesired } from "../../sections/exec/actual.ts";

export interface OpenExposureOptions {
  readonly log: Logger;
  readonly exec: Exec;
  readonly files: Files;
  readonly reader: Reader;
  readonly stateDir: string;
  /** Whether systemd runs this program. */
  readonly isManaged?: boolean;
  readonly onDamage?: OnDamage;
  readonly network: ContainerNetwork;
  /** Returns the engine, and opens it first if necessary. */
  readonly engine: () => Engine;
  /** The record of the section `network`, including the tables of VRFs. */
  readonly record: Pick<RecordStore, "load">;
}

/** The network of the documents: the range of the containers, and the VRFs. */
export interface NetworkWish {
  readonly subnet: string;
  readonly vrfs: readonly string[];
}

/** The network access of this node's containers. */
export interface OpenedExposure {
  observe(desired: ExecDesired | undefined, wish: NetworkWish, signal: AbortSignal): Promise<ExposureSeen>;
  apply(step: ExposureStep, signal: AbortSignal): Promise<void>;
  /** Creates the network of the containers if it does not exist; rejects if that fails. */
  ensureNetwork(engine: Engine, signal: AbortSignal): Promise<void>;
  /** Reports whether it exists and is recorded; changes nothing. */
  hasNetwork(engine: Engine, signal: AbortSignal): Promise<boolean>;
}

/** Opens it; nothing is read or run before a definition needs it. */
export function openExposure(options: OpenExposureOptions): OpenedExposure {
  const { log, exec, files, reader, stateDir, onDamage, network, engine } = options;
  const record = new ExposureRecord(files, reader, stateDir, onDamage);
  const conntrack = hostConntrack({ exec, reader, record: () => Promise.resolve() });
  const tools = toolRunner(exec);
  const inside = toolRunner(privilegedExec(exec, options.isManaged ?? false));
  const driver = exposureDriver({ tools, inside, record, conntrack });

  async function tables(vrfs: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const noted = new Map(Object.entries((await options.record.load()).vrfs));
    return new Map(
      vrfs.flatMap((name) => {
        const table = noted.get(name);
        return table === undefined ? [] : [[name, table] as const];
      }),
    );
  }

  async function removeNetwork(signal: AbortSignal): Promise<void> {
    try {
      await network.remove(engine(), signal);
    } catch (error) {
      if (!(error instanceof HostError && error.code === "engine-unwell")) throw error;
      // An engine that was taken away has taken it along; another one finds it by its label.
      log.info({ err: toError(error) }, "the network of the containers stays with the engine");
    }
    await record.change({ hasNetwork: false, hadBridge: false });
  }

  async function restoreLink(containers: readonly string[], signal: AbortSignal): Promise<void> {
    const details = await Promise.all(containers.map((id) => engine().inspectContainer(id, signal)));
    const pids = details.flatMap((detail) => (detail === undefined || detail.pid === 0 ? [] : [detail.pid]));
    const isOurs = await network.restore(
      engine(),
      (bridge) => restoreBridge({ tools, reader }, { link: CONTAINER_LINK, ...bridge }, pids, signal),
      signal,
    );
    // The link was removed together with the network.
    if (!isOurs) await record.change({ hadBridge: false });
  }

  return {
    async observe(desired, { subnet, vrfs }, signal) {
      const containers = desired?.config.containers ?? [];
      const handsOver = containers.some(({ interfaces }) => interfaces.length > 0);
      const usesVrf = containers.some(({ vrf }) => vrf !== undefined);
      const ports = handsOver || containers.some(({ portMappings }) => portMappings.length > 0);
      const state = await driver.observe({ ports, routing: handsOver || usesVrf }, signal);
      const hasBridge = state.hasNetwork && reader.fingerprint(`/sys/class/net/${CONTAINER_LINK}`) !== undefined;
      const hadBridge = state.hasNetwork && (await record.content()).hadBridge === true;
      if (hasBridge && !hadBridge) await record.change({ hadBridge: true });
      let listeners: readonly Listener[] | undefined;
      let addresses: ExposureSeen["addresses"] | undefined;
      return {
        state,
        bridge: CONTAINER_LINK,
        isBridgeGone: hadBridge && !hasBridge,
        subnet,
        // A node without containers reads nothing.
        get addresses() {
          return (addresses ??= addressesByLink(reader));
        },
        listeners: () => (listeners ??= readListeners(reader)),
        vrfs: usesVrf ? await tables(vrfs) : new Map(),
      };
    },
    async apply(step, signal) {
      if (step.kind === "remove network") return removeNetwork(signal);
      if (step.kind === "restore link") return restoreLink(step.containers, signal);
      const pidOf = async (id: string): Promise<number | undefined> => {
        const detail = await engine().inspectContainer(id, signal);
        return detail?.pid;
      };
      await driver.apply(step.change, pidOf, signal);
    },
    async ensureNetwork(of, signal) {
      await record.change({ hasNetwork: true });
      await network.ensure(of, signal);
    },
    hasNetwork: async (of, signal) => (await record.content()).hasNetwork && network.stands(of, signal),
  };
}
