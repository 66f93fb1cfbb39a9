import { z } from "zod";
import { InputError, SessionError } from "../../../errors.ts";
import { safeJson } from "../../../lib/text/terminal-text.ts";
import { SpeedTest } from "../../../protocol/triggers/bodies.ts";
import { measurement } from "../../text/measurement.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { COMMON } from "../../frame/verb-options.ts";

const Mbps = z.number().min(0);

/** Decimal megabits per second so far, once a second; the last one is `done`. */
const SpeedFigures = z.object({
  downloadMbps: Mbps,
  maxDownloadMbps: Mbps,
  uploadMbps: Mbps,
  maxUploadMbps: Mbps,
  done: z.literal(true).optional(),
});
type SpeedFigures = z.infer<typeof SpeedFigures>;

const CLEAR_LINE = "\r\u001b[K";

export const speedtestVerb: Verb = {
  name: "speedtest",
  summary: "measure the speed to the control plane's speed-test server",
  about: "With --json each line is one object; the last has done.",
  arguments: [
    {
      name: "direction",
      isRequired: false,
      help: "download, upload or both (both)",
      complete: ["download", "upload", "both"],
    },
  ],
  options: COMMON,
  exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
  example: "holdfast speedtest download",
  output: SpeedFigures,
  async run(call) {
    const { settings, terminal } = call;
    const body = request(call);
    let last: SpeedFigures | undefined;
    try {
      for await (const figures of measurement(call, "speed-test", body, SpeedFigures)) {
        last = figures;
        if (settings.isJson) terminal.out(`${safeJson(figures)}\n`);
        else if (figures.done !== true) showProgress(call, body, figures);
      }
    } catch (error) {
      if (!settings.isJson && terminal.isInteractive && last !== undefined) terminal.out("\n");
      throw explained(error);
    }
    if (!settings.isJson && last !== undefined) {
      terminal.out(`${terminal.isInteractive ? CLEAR_LINE : ""}${directions(body, last).join("\n")}\n`);
    }
    return "ok";
  },
};

function request({ positionals }: Call): SpeedTest {
  const [action = "both"] = positionals;
  const parsed = SpeedTest.safeParse({ action });
  if (parsed.success) return parsed.data;
  throw new InputError("usage", `the direction is download, upload or both, not '${action}'`);
}

function explained(error: unknown): unknown {
  if (!(error instanceof SessionError) || error.code !== "not-configured") return error;
  const hint = "the control plane offers one, or 'speedTestUrl' in /etc/holdfast/agent.json names one";
  return new SessionError(error.code, `${error.message}: ${hint}`, { cause: error });
}

/** Prints measurements: on a terminal in one overwritten line, otherwise a line for each. */
function showProgress({ terminal }: Call, body: SpeedTest, figures: SpeedFigures): void {
  const text = directions(body, figures).join("; ");
  terminal.out(terminal.isInteractive ? `${CLEAR_LINE}${text.slice(0, terminal.size().columns - 1)}` : `${text}\n`);
}

/** Results per direction; a direction that has not started is absent. */
function directions({ action }: SpeedTest, figures: SpeedFigures): readonly string[] {
  const { downloadMbps, maxDownloadMbps, uploadMbps, maxUploadMbps, done } = figures;
  const shown = (is: "download" | "upload", peak: number): boolean =>
    (action === is || action === "both") && (done === true || action === is || peak > 0);
  return [
    ...(shown("download", maxDownloadMbps) ? [rateText("download", downloadMbps, maxDownloadMbps)] : []),
    ...(shown("upload", maxUploadMbps) ? [rateText("upload", uploadMbps, maxUploadMbps)] : []),
  ];
}

function rateText(what: string, average: number, peak: number): string {
  return `${what} ${average.toFixed(1)} Mbit/s, peak ${peak.toFixed(1)}`;
}
