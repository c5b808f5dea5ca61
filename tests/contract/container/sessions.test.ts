import { sessionsContract } from "../sessions.ts";
import { CONTAINER } from "./backend.ts";

sessionsContract(CONTAINER);
