"""The embedded services of one machine without docker: PostgreSQL, an S3 gateway and Airflow, started detached."""
