import { sessionsContract } from "../sessions.ts";
import { MICROVM } from "./backend.ts";

sessionsContract(MICROVM);
