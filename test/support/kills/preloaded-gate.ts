import { passGate } from "../gate.ts";

await passGate();
