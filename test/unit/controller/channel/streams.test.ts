import { expect, onTestFinished, test } from "vitest";
import { WebSocket } from "ws";
import { InputError } from "../../../../src/errors.ts";
import { STREAM_PATH } from "../../../../src/protocol/channel/envelope.ts";
import { peekClaims } from "../../../../src/protocol/channel/jws.ts";
import { STREAM_SUBPROTOCOL, TICKET_HEADER } from "../../../../src/protocol/channel/streams.ts";
import { addNode, MovableClock, runController } from "../../../support/control-plane/running-controller.ts";
import { until } from "../../../support/control-plane/node-client.ts";

/** Dials as a node would: `open`, or the status of the refusal. */
function dial(origin: string, ticket: string): Promise<number | "open"> {
  const url = `${origin.replace(/^http/, "ws")}${STREAM_PATH}`;
  const socket = new WebSocket(url, STREAM_SUBPROTOCOL, { headers: { [TICKET_HEADER]: ticket } });
  onTestFinished(() => socket.terminate());
  return new Promise((resolve) => {
    socket.on("open", () => resolve("open")).on("error", () => undefined);
    socket.on("unexpected-response", (_, response) => resolve(response.statusCode ?? 0));
  });
}

async function setUp(clock = new MovableClock()) {
  const controller = await runController({ clock });
  const node = await addNode(controller, "edge");
  const orders: { jws: string; ticket: string }[] = [];
  let refusal: Error | undefined;
  const connect = () =>
    node.connect({
      handlers: {
        "stream.open": (order) => {
          orders.push(order);
          if (refusal !== undefined) throw refusal;
          return {};
        },
      },
    });
  const session = await connect();
  const wanted = { container: "web", cols: 80, rows: 24, user: "ann" };
  const open = () => controller.terminals.open(node.uid, wanted, new AbortController().signal);
  const ordered = () => until(() => orders.at(-1), "the order");
  const refuse = (error: Error): void => void (refusal = error);
  return { controller, clock, node, session, connect, open, ordered, refuse };
}

test("a ticket lets a node in once, for the session it was given in", async () => {
  const { controller, session, node, open, ordered } = await setUp();
  const opening = open();
  const { jws, ticket } = await ordered();
  const claims = peekClaims("holdfast-stream+jwt", jws);
  expect(claims).toMatchObject({ aud: node.uid, sid: session.sid, kind: "container-exec", user: "ann" });
  expect(await dial(controller.url, "x".repeat(43))).toBe(401);
  expect(await dial(controller.url, ticket)).toBe("open");
  (await opening).discard();
  expect(await dial(controller.url, ticket)).toBe(401);
});

test("a ticket that is too old lets nobody in", async () => {
  const { controller, clock, open, ordered } = await setUp();
  open().catch(() => undefined);
  const { ticket } = await ordered();
  clock.advance(60_001);
  expect(await dial(controller.url, ticket)).toBe(401);
});

test("a session that ends takes its tickets along", async () => {
  const { controller, session, connect, open, ordered } = await setUp();
  const opening = open();
  opening.catch(() => undefined);
  const { ticket } = await ordered();
  await session.cut();
  await expect(opening).rejects.toMatchObject({ code: "offline" });
  await connect();
  expect(await dial(controller.url, ticket)).toBe(401);
});

test("what the node refuses is the answer, and its ticket is void", async () => {
  const { controller, open, ordered, refuse } = await setUp();
  refuse(new InputError("not-found", "there is no container web"));
  await expect(open()).rejects.toMatchObject({ code: "not-found", message: "there is no container web" });
  expect(await dial(controller.url, (await ordered()).ticket)).toBe(401);
});
