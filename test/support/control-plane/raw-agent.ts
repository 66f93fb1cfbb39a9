import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { someDirectories, type Directories } from "../local-agent.ts";

/** Listens on the agent's sockets and answers each connection by the test's function. */
export async function startRawAgent(answer: (socket: Socket) => void): Promise<Directories> {
  const directories = await someDirectories();
  await mkdir(directories.runDir);
  const sockets = new Set<Socket>();
  const servers = ["agent.sock", "admin.sock"].map((name) => {
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.once("data", () => answer(socket));
    });
    server.listen(join(directories.runDir, name));
    return server;
  });
  await Promise.all(servers.map((server) => once(server, "listening")));
  return {
    ...directories,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      for (const server of servers) server.close();
      await directories[Symbol.asyncDispose]();
    },
  };
}

/** One HTTP answer with this body. */
export function httpAnswer(body: string, status = "200 OK"): string {
  return `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n${body}`;
}
