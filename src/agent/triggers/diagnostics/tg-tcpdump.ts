import type { Clock } from "../../../host/clock.ts";
import type { Exec } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import { TgTcpdump } from "../../../protocol/triggers/bodies.ts";
import { cannotChangeUser, checkFilter, filterArguments } from "../tools/capture-filter.ts";
import { needLink } from "../tools/known-link.ts";
import { LineCap } from "../execution/line-cap.ts";
import type { StreamTrigger } from "../execution/trigger.ts";

/** A capture of the link that carries its own output would feed on itself. */
const LINES_PER_SECOND = 500;
/** Somebody who waits gets what these let through. */
const WAIT_PACKETS = 1000;
const WAIT_MS = 30_000;

/** A file that gets the lines: there under its name once it is whole. */
interface LinesFile {
  append(text: string): void;
  /** Resolves to its length in bytes. */
  publish(): Promise<number>;
  discard(): void;
}

/** Begins a file at a path of the data store. @throws {InputError} `not-supported` where there is none, and its refusals */
export type BeginFile = (path: string, signal: AbortSignal) => Promise<LinesFile>;

export interface TgTcpdumpOptions {
  /** Starts tools that capture packets. */
  readonly exec: Exec;
  readonly files: Files;
  readonly clock: Clock;
  readonly begin: BeginFile;
}

/**
 * Shows packets of a link, a line of headers each, with tcpdump(8); the filter is tried out first. Ends with its session; a file of what
 * was shown is kept however it ends, unless it fails.
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

/** The command line of a capture: never the packets' content, neither as text nor into a file of its own. */
export function captureArguments(
  { iface, filter, packetCount, snaplen }: Omit<TgTcpdump, "maxBytes" | "file">,
  wait: boolean,
): string[] {
  const count = packetCount === 0 && wait ? WAIT_PACKETS : packetCount;
  const bound = count === 0 ? [] : ["-c", String(count)];
  return ["-n", "-l", "-i", iface, "-s", String(snaplen), ...bound, ...filterArguments(filter)];
}
