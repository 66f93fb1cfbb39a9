import type { DatabaseSync } from "node:sqlite";
import type { Logger } from "pino";
import type { Clock } from "../../../host/clock.ts";
import type { Reader } from "../../../host/reader.ts";
import type { ShadowMap } from "../../../protocol/values/shadow.ts";
import type { Compute } from "../../containers/model/compute.ts";
import { OutputSaver } from "../../containers/output/saved-output.ts";
import type { AgentSettings } from "../../settings.ts";
import { containerFacts } from "../../containers/facts.ts";
import type { Desired } from "../../shadow/desired.ts";
import { containerEvents } from "../../containers/events.ts";
import { containerMetrics } from "../../containers/metrics.ts";
import type { EventLog } from "../../telemetry/events.ts";
import type { Pusher } from "../../telemetry/pusher.ts";
import type { Spool } from "../../telemetry/spool.ts";
import { containerRun } from "../../triggers/containers/container-run.ts";

export interface OpenContainersViewOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly reader: Reader;
  readonly settings: Pick<AgentSettings, "containerEvents">;
  readonly compute: Compute;
  readonly documents: { readonly current: Desired };
  readonly sql: DatabaseSync;
  readonly spool: Pick<Spool, "appendAll">;
  readonly pusher: Pick<Pusher, "push">;
  readonly events: EventLog;
  /** Called when a shadow fact may have changed. */
  readonly onChanged: () => void;
  readonly onRefused: (error: unknown) => void;
}

/** Reports on the containers of this node. */
export interface ContainersView {
  readonly compute: () => Compute;
  /** Finds the trigger event that has the name of a container. */
  readonly run: ReturnType<typeof containerRun>;
  /** The host of the platform's registry. */
  readonly registryHost: () => string | undefined;
  /** Adds a line to the node's audit trail. */
  readonly audit: (what: string) => void;
  /** The shadow facts. */
  facts(): ShadowMap;
  /** Returns the metrics of a minute. */
  sample(): Readonly<Record<string, number>>;
  close(): Promise<void>;
}

const MAX_AUDIT = 1024;

/** Opens the reports on containers; without containers they are empty. */
export function openContainersView(options: OpenContainersViewOptions): ContainersView {
  const { clock, reader, settings, compute, documents, sql, spool, pusher, events, onChanged, onRefused } = options;
  const put = (stream: "audits" | "output", records: readonly object[]): void => {
    spool.appendAll(
      stream,
      records.map((record) => ({ ...record })),
    );
    pusher.push();
  };
  const saver = new OutputSaver({
    compute,
    sql,
    clock,
    log: options.log.child({ component: "compute" }),
    append: (records) => put("output", records),
    onRefused,
  });
  const sample = containerMetrics({ clock, reader, containers: () => compute.containers() });
  const watch = settings.containerEvents === true ? containerEvents(events, () => clock.elapsed()) : undefined;
  compute.onChange(() => {
    watch?.(compute.containers());
    onChanged();
  });
  const hasExec = (): boolean => documents.current.node?.body.type === "Node";
  const audit = (what: string): void =>
    put("audits", [
      { category: "Local Action", value: what.slice(0, MAX_AUDIT), timestamp: Math.floor(clock.now() / 1000) },
    ]);
  return {
    compute: () => compute,
    run: containerRun({ compute: () => compute, audit }),
    registryHost: () => documents.current.node?.body.registry?.host,
    audit,
    facts: () => ({
      // No hypervisor is ever started; the key keeps older clients from offering one.
      ...(hasExec() ? { features: { exec: true }, "kvm-enabled": "false" } : {}),
      ...containerFacts(compute.containers()),
    }),
    sample() {
      watch?.(compute.containers());
      return sample();
    },
    close: () => saver.close(),
  };
}
