"""Paper 003 as printed, corrected: process groups with views, CBCAST, ABCAST, and the flush between two views."""
