import type { Clock } from "../../../host/clock.ts";
import type { Exec } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import { TgTcpdump } from "../../../protocol/triggers/bodies.ts";
import { cannotChangeUser, checkFilter, filterArguments } from "../tools/capture-filter.ts";
import { needLink } from "../tools/known-link.ts";
import { LineCap } from "../execution/line-cap.ts";
import type { StreamTrigger } from "../execution/trigger.ts";

/** Capturing the link that carries the output would capture the output. */
const LINES_PER_SECOND = 500;
/** Limits for a caller that waits. */
const WAIT_PACKETS = 1000;
const WAIT_MS = 30_000;

/** A file for the lines; it appears under its name when complete. */
interface LinesFile {
  append(text: string): void;
  /** Resolves to its length in bytes. */
  publish(): Promise<number>;
  discard(): void;
}

/** Creates a file at a path of the data store. @throws {InputError} `not-supported` without a data store; errors of the store */
export type BeginFile = (path: string, signal: AbortSignal) => Promise<LinesFile>;

export interface TgTcpdumpOptions {
  /** Starts tools that capture packets. */
  readonly exec: Exec;
  readonly files: Files;
  readonly clock: Clock;
  readonly begin: BeginFile;
}

/**
 * Streams packets of a link as header lines, with tcpdump(8), after a check of the filter. Ends with its session; the file of the shown
 * lines is kept unless the capture fails.
 */
export function tgTcpdump({ exec, files, clock, begin }: TgTcpdumpOptions): StreamTrigger<TgTcpdump> {
  return {
    event: "tg-tcpdump",
    kind: "stream",
    request: TgTcpdump,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: false,
    isReadOnly: ({ file }) => file === undefined,
    agents: true,
    async handle(request, { wait, signal, emit }) {
      await needLink(files, request.iface, "iface");
      await checkFilter(exec, "tg-tcpdump", request, signal);
      let saved = request.file === undefined ? undefined : await begin(request.file, signal);
      const capture = exec.spawn("tcpdump", captureArguments(request, wait), { signal });
      const cap = new LineCap({ perSecond: LINES_PER_SECOND, maxBytes: request.maxBytes });
      const cancel = wait ? clock.after(WAIT_MS, () => capture.kill()) : (): void => undefined;
      const said = async (part: { readonly lines: string; readonly note: string }): Promise<void> => {
        saved?.append(part.note + part.lines);
        if (part.note !== "") await emit({ kind: "stderr", data: part.note });
        if (part.lines !== "") await emit({ kind: "stdout", data: part.lines });
      };
      let complaint = "";
      try {
        for await (const { kind, data } of capture.output) {
          if (kind === "stderr") {
            complaint = (complaint + data).slice(-1024);
            await emit({ kind, data });
            continue;
          }
          const wasFull = cap.isFull;
          await said(cap.take(data, clock.elapsed()));
          if (!cap.isFull || wasFull) continue;
          await said({ lines: "", note: `ended after ${request.maxBytes} bytes of text\n` });
          capture.kill();
        }
        await said(cap.end());
        const exitCode = await capture.exitCode;
        const refusal = cannotChangeUser(complaint);
        if (refusal !== undefined) throw refusal;
        if (saved !== undefined && exitCode === 0) {
          const bytes = await saved.publish();
          saved = undefined;
          await emit({ kind: "stderr", data: `${request.file ?? ""}: ${bytes} bytes written to the data store\n` });
        }
        return { exitCode };
      } finally {
        saved?.discard();
        cancel();
      }
    },
  };
}

/** Builds tcpdump's arguments: never packet contents, neither as text nor into a file of its own. */
export function captureArguments(
  { iface, filter, packetCount, snaplen }: Omit<TgTcpdump, "maxBytes" | "file">,
  wait: boolean,
): string[] {
  const count = packetCount === 0 && wait ? WAIT_PACKETS : packetCount;
  const bound = count === 0 ? [] : ["-c", String(count)];
  return ["-n", "-l", "-i", iface, "-s", String(snaplen), ...bound, ...filterArguments(filter)];
}
