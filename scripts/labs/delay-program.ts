// Runs in a site's router: delay-program.ts ROUND-TRIP-MS PORT=HOST:PORT...
import { delayProxy } from "./delay-line.ts";

const [roundTripMs = "0", ...ways] = process.argv.slice(2);
for (const way of ways) {
  const [own = "", host = "", port = ""] = way.split(/[=:]/);
  await delayProxy(
    { host: "0.0.0.0", port: Number(own) },
    { host, port: Number(port), roundTripMs: Number(roundTripMs) },
  );
}
console.log("ready");
