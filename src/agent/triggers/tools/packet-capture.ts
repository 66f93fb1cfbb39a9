import type { Logger } from "pino";
import { AgentError, HostError, InputError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { Exec, Spawned } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import { PcapSplitter, type PcapPart } from "../../../lib/formats/pcap-splitter.ts";
import { CAPTURE_EVENT, type CaptureAnswer, type TgCapture } from "../../../protocol/triggers/capture.ts";
import { DataStoreListing } from "../../../protocol/triggers/data-store.ts";
import { cannotChangeUser, checkFilter, filterArguments } from "./capture-filter.ts";
import type { AnswerDataStore } from "../containers/datastore-manager.ts";
import { needLink } from "./known-link.ts";
import { LOCAL_USER } from "../execution/trigger.ts";
import { defined } from "../../../lib/defined.ts";

/** A data store file under construction; it appears under its name when published. */
interface CaptureFile {
  append(content: Uint8Array): void;
  publish(): Promise<number>;
  discard(): void;
}

export interface PacketCaptureOptions {
  /** Starts tools that capture packets. */
  readonly exec: Exec;
  readonly files: Pick<Files, "list">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: {
    readonly handle: AnswerDataStore;
    /** @throws {HostError} `disk-full` when the disk's reserve or the quota leaves no room. */
    create(path: string, signal: AbortSignal): Promise<CaptureFile>;
  };
  /** Adds a line to the audit log. */
  readonly audit: (what: string) => void;
}

type Start = Extract<TgCapture, { readonly action: "start" }>;
type Reason = NonNullable<NonNullable<CaptureAnswer["capture"]>["reason"]>;

const DIRECTORY = "captures";
const OWN_NAME = /^capture-\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.pcap\d+$/;
const MAX_FILE_BYTES = 10_000_000;
/** Bytes read from tcpdump per second; the kernel drops and counts packets beyond. */
const MAX_BYTES_PER_SECOND = 16 * 1024 * 1024;
const BEGIN_MS = 10_000;
/** tcpdump receives packets up to a second late, in blocks, and loses at its end those that it has not received. */
const HELD_MS = 1100;
const MAX_SAID = 1024;

/** Captures packets into files of the data store, one capture at a time, until it is stopped or reaches a limit. */
export class PacketCapture {
  readonly #options: PacketCaptureOptions;
  readonly #ending = new AbortController();
  #run: Run | undefined;
  #isStarting = false;

  constructor(options: PacketCaptureOptions) {
    this.#options = options;
  }

  /**
   * @throws {InputError} `busy`, `not-found` for the interface, `invalid-body` for the filter; {HostError} `exec-failed`, `tool-missing`,
   *   `disk-full`.
   */
  async start(request: Start, user: string, signal: AbortSignal): Promise<CaptureAnswer> {
    if (this.#isStarting || this.#run?.isOver === false) {
      throw new InputError(
        "busy",
        `a capture is running: stop it first, by 'holdfast captures stop' or by ${CAPTURE_EVENT} with the action "stop"`,
      );
    }
    this.#isStarting = true;
    try {
      const { files, exec, log, audit } = this.#options;
      await needLink(files, request.iface, "iface");
      await checkFilter(exec, CAPTURE_EVENT, request, signal);
      // Checked before the start, so that no capture runs after the error.
      const earlier = await this.#files(signal);
      if (request.deleteExisting) await this.#delete(earlier, signal);
      const run = new Run(this.#options, request, user, this.#ending.signal);
      this.#run = run;
      await run.begun(signal);
      const { iface, filter, maxMegabytes } = request;
      log.info({ iface, filter, maxMegabytes, user }, "capture started");
      if (user === LOCAL_USER) audit(`${user} started a capture of packets on ${iface}`);
    } finally {
      this.#isStarting = false;
    }
    return this.status(signal);
  }

  /** Stops the running capture, if any, and publishes its files. */
  async stop(signal: AbortSignal): Promise<CaptureAnswer> {
    await this.#run?.end({ code: "stopped", message: "it was stopped" });
    return this.status(signal);
  }

  async status(signal: AbortSignal): Promise<CaptureAnswer> {
    const files = await this.#files(signal);
    const run = this.#run;
    if (run === undefined) return { state: "STOPPED", files: [...files] };
    return { state: run.isOver ? "STOPPED" : "RUNNING", capture: run.report(), files: [...files] };
  }

  /** Stops the running capture and publishes its files. */
  async close(): Promise<void> {
    await this.#run?.end({ code: "interrupted", message: "the agent was stopped" });
    this.#ending.abort(new InputError("cancelled", "the agent is stopping"));
  }

  async #files(signal: AbortSignal): Promise<CaptureAnswer["files"]> {
    try {
      const listing = await this.#options.store.handle({ action: "LIST", filename: DIRECTORY }, signal);
      return DataStoreListing.parse(listing)
        .files.filter(({ name, type }) => type === "file" && OWN_NAME.test(name))
        .map(({ path, bytes }) => ({ path, bytes }));
    } catch (error) {
      if (error instanceof AgentError && error.code === "not-found") return [];
      throw error;
    }
  }

  async #delete(files: CaptureAnswer["files"], signal: AbortSignal): Promise<void> {
    for (const { path } of files) {
      await this.#options.store.handle({ action: "DELETE", filename: path }, signal);
    }
  }
}

/** One capture, from tcpdump to its files. */
class Run {
  isOver = false;
  readonly #options: PacketCaptureOptions;
  readonly #request: Start;
  readonly #user: string;
  readonly #signal: AbortSignal;
  readonly #startedAt: number;
  readonly #tool: Spawned;
  readonly #splitter: PcapSplitter;
  /** Number of files that are kept. */
  readonly #ring: number;
  /** Oldest first. */
  readonly #kept: { readonly file: CaptureFile; bytes: number }[] = [];
  readonly #done: Promise<void>;
  /** Settles when the capture has started or failed. */
  readonly #listening: Promise<void>;
  #isListening: () => void = () => undefined;
  #listensNot: (error: Error) => void = () => undefined;
  readonly #cancelTime: () => void;
  #numbered = 0;
  #said = "";
  #endedAt: number | undefined;
  #reason: Reason | undefined;
  #window = { since: -Infinity, bytes: 0 };

  constructor(options: PacketCaptureOptions, request: Start, user: string, signal: AbortSignal) {
    const { clock, exec } = options;
    const { iface, filter, maxMegabytes, maxSeconds, packetCount } = request;
    this.#options = options;
    this.#request = request;
    this.#user = user;
    this.#signal = signal;
    this.#startedAt = clock.now();
    this.#ring = Math.max(2, Math.ceil((maxMegabytes * 1_000_000) / MAX_FILE_BYTES));
    this.#splitter = new PcapSplitter(Math.floor((maxMegabytes * 1_000_000) / this.#ring));
    const bound = packetCount === 0 ? [] : ["-c", String(packetCount)];
    const args = ["-n", "-i", iface, "-w", "-", ...bound, ...filterArguments(filter)];
    this.#tool = exec.spawn("tcpdump", args, { signal, encoding: "latin1" });
    this.#cancelTime = clock.after(
      maxSeconds * 1000,
      () => void this.end({ code: "time", message: `it ran for ${maxSeconds} s` }),
    );
    this.#listening = new Promise((resolve, reject) => {
      this.#isListening = resolve;
      this.#listensNot = reject;
    });
    this.#listening.catch(() => undefined); // The caller may have stopped waiting.
    this.#done = this.#carryOut();
  }

  /** Resolves when the capture has started. @throws the reason if it has not */
  async begun(signal: AbortSignal): Promise<void> {
    const late = (): void =>
      this.#listensNot(new HostError("timeout", `tcpdump did not start to capture within ${BEGIN_MS / 1000} s`));
    const cancel = this.#options.clock.after(BEGIN_MS, late);
    const onAbort = (): void => this.#listensNot(toError(signal.reason));
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      await this.#listening;
    } catch (error) {
      this.#tool.kill();
      await this.end({ code: "exec-failed", message: toError(error).message });
      throw error;
    } finally {
      cancel();
      signal.removeEventListener("abort", onAbort);
    }
  }

  /**
   * Stops the capture with a reason, unless it is stopping; resolves when its files are published. They hold all packets up to the call,
   * and perhaps later ones.
   */
  async end(reason: Reason): Promise<void> {
    this.#reason ??= reason;
    const cancel = this.#options.clock.after(HELD_MS, () => this.#tool.kill());
    await this.#done;
    cancel();
  }

  report(): NonNullable<CaptureAnswer["capture"]> {
    const { iface, filter, maxMegabytes, maxSeconds, packetCount } = this.#request;
    return {
      iface,
      filter,
      maxMegabytes,
      maxSeconds,
      packetCount,
      user: this.#user.slice(0, 512),
      startedAt: this.#startedAt,
      ...defined({ endedAt: this.#endedAt }),
      packets: this.#splitter.packets,
      bytes: this.#kept.reduce((sum, { bytes }) => sum + bytes, 0),
      ...defined({ reason: this.#reason }),
    };
  }

  async #carryOut(): Promise<void> {
    const { clock, log } = this.#options;
    try {
      await this.#copy();
      const exitCode = await this.#tool.exitCode;
      const { packetCount } = this.#request;
      if (packetCount > 0 && this.#splitter.packets >= packetCount) {
        this.#reason ??= { code: "packets", message: `it has ${packetCount} packets` };
      }
      if (this.#reason === undefined) throw this.#failure(exitCode);
    } catch (thrown) {
      const error = toError(thrown);
      this.#tool.kill();
      this.#listensNot(error);
      const code = error instanceof HostError && error.code === "disk-full" ? error.code : "exec-failed";
      this.#reason ??= { code, message: error.message.slice(0, MAX_SAID) };
    }
    this.#cancelTime();
    // A capture without packets has not failed, and leaves no file.
    this.#listensNot(this.#failure(0));
    await this.#publish();
    this.#endedAt = clock.now();
    this.isOver = true;
    log.info({ reason: this.#reason, packets: this.#splitter.packets }, "capture ended");
  }

  async #copy(): Promise<void> {
    for await (const { kind, data } of this.#tool.output) {
      if (kind === "stderr") {
        this.#said = (this.#said + data).slice(-MAX_SAID);
        if (/listening on /u.test(this.#said)) this.#isListening();
        continue;
      }
      const bytes = Buffer.from(data, "latin1");
      for (const part of this.#splitter.take(bytes)) await this.#take(part);
      await this.#pace(bytes.length);
    }
  }

  async #take(part: PcapPart): Promise<void> {
    if (part.is === "file") return this.#nextFile();
    const current = this.#kept.at(-1);
    if (current === undefined) return;
    current.file.append(part.bytes);
    current.bytes += part.bytes.length;
  }

  async #nextFile(): Promise<void> {
    if (this.#kept.length >= this.#ring) this.#kept.shift()?.file.discard();
    const time = new Date(this.#startedAt).toISOString().slice(0, 19).replace("T", "_").replaceAll(":", "-");
    const path = `${DIRECTORY}/capture-${time}.pcap${this.#numbered}`;
    this.#numbered += 1;
    this.#kept.push({ file: await this.#options.store.create(path, this.#signal), bytes: 0 });
  }

  /** Pauses reading, so that the kernel drops packets instead of keeping this program busy. */
  async #pace(bytes: number): Promise<void> {
    const { clock } = this.#options;
    const now = clock.elapsed();
    if (now >= this.#window.since + 1000) this.#window = { since: now, bytes: 0 };
    this.#window.bytes += bytes;
    if (this.#window.bytes >= MAX_BYTES_PER_SECOND) await clock.sleep(this.#window.since + 1000 - now, this.#signal);
  }

  async #publish(): Promise<void> {
    const published = [];
    for (const kept of this.#kept) {
      try {
        await kept.file.publish();
        published.push(kept);
      } catch (error) {
        kept.file.discard();
        this.#options.log.warn({ err: toError(error) }, "a file of a capture could not be stored");
      }
    }
    this.#kept.splice(0, this.#kept.length, ...published);
  }

  #failure(exitCode: number): HostError {
    const said = this.#said.trim().replace(/^tcpdump: /u, "");
    const message = `tcpdump ended with status ${exitCode}${said === "" ? "" : `: ${said}`}`;
    return cannotChangeUser(this.#said) ?? new HostError("exec-failed", message, { details: { tool: "tcpdump" } });
  }
}
