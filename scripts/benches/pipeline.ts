import type { Bench } from "./bench.ts";
import { median } from "./figures.ts";
import { mixedMessages } from "./mix.ts";
import { startHelper } from "./programs.ts";
import { RawWebSocket, textFrame } from "./raw-websocket.ts";

const ROUNDS = 9;
const WARM_UP = 3;
const MIXES = 3000;
/** Mixes on their way at a time. */
const AHEAD = 16;

/** Messages through size, UTF-8, depth, schema and dispatch, against a server that sends the same bytes back. */
export const pipeline: Bench = {
  area: "pipeline",
  about: "messages a second through the session's checks, against a bare ws echo",
  async run() {
    const messages = mixedMessages();
    const frames = Buffer.concat(messages.map(textFrame));
    const requests = messages.filter((text) => "id" in (JSON.parse(text) as object)).length;
    const servers = {
      pipeline: startHelper("pipeline-server.ts", ["pipeline"]),
      echo: startHelper("pipeline-server.ts", ["echo"]),
    };
    const [ours, echo] = await Promise.all(
      [servers.pipeline, servers.echo].map(async (server) => RawWebSocket.open(Number(await server.ask("port")))),
    );
    if (ours === undefined || echo === undefined) throw new Error("no server");
    const perSecond = async (socket: RawWebSocket, answers: number): Promise<number> => {
      const from = performance.now();
      await socket.pump(frames, MIXES, answers, AHEAD);
      return (1000 * MIXES * messages.length) / (performance.now() - from);
    };
    const [here, there]: [number[], number[]] = [[], []];
    for (let round = 0; round < WARM_UP + ROUNDS; round += 1) {
      const rates = [await perSecond(ours, requests), await perSecond(echo, messages.length)] as const;
      if (round < WARM_UP) continue;
      here.push(rates[0]);
      there.push(rates[1]);
    }
    ours.close();
    echo.close();
    await Promise.all([servers.pipeline.end(), servers.echo.end()]);
    return [
      {
        what: `messages of ${Math.round(frames.length / messages.length)} bytes`,
        value: median(here),
        unit: "/s",
        peer: { name: "a bare ws echo", value: median(there) },
        bar: { of: "ratio", least: 0.5 },
      },
    ];
  },
};
