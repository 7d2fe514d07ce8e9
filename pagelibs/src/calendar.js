// EventCalendar as the group page uses it: days, weeks and a list, and dragging.
import "@event-calendar/core/index.css";
export { DayGrid, Interaction, List, TimeGrid, createCalendar, destroyCalendar } from "@event-calendar/core";
